# SPDX-License-Identifier: Apache-2.0
"""Whatever happened to an object: the same answer by recomputation, and the next request hits again."""
from __future__ import annotations

from conftest import kvern_only

WHOLE = 768  # tokens of a prompt of 1000 in whole chunks


@kvern_only
def test_damaged_objects(run, model, store):
    found = run("cases:damaged", model=model, store=str(store), timeout_s=150)
    assert len(found) == 9
    for name, (cold, hurt, healed) in found.items():
        assert cold.hit == 0, name
        assert hurt.difference(cold) <= 1e-4, name
        assert healed.hit >= WHOLE, f"{name}: hit {healed.hit} tokens afterwards, {WHOLE} were computed again"
        assert healed.difference(cold) <= 1e-4, name

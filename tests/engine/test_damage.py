# SPDX-License-Identifier: Apache-2.0
"""Whatever happened to an object: the same answer by recomputation, and the next request hits again."""
from __future__ import annotations

import pytest
from conftest import NAIVE

WHOLE = 768  # tokens of a prompt of 1000 in whole chunks
DAMAGES = ["a flipped bit in the middle", "a flipped bit at the very end", "a flipped bit in the header",
           "a flipped bit in every object", "a truncated object", "an empty object", "a removed object",
           "all objects removed", "two objects swapped"]


@pytest.fixture(scope="module")
def found(host, model, tmp_path_factory) -> dict:
    """One engine goes through all of them: damage -> the computed answer, the one with the damage, the one after it."""
    if NAIVE:
        pytest.skip("the naive connector does not promise this")
    store = tmp_path_factory.mktemp("damaged")
    return host.call("cases:damaged", host.logs / "damaged.log", 200, model=model, store=str(store), names=DAMAGES)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_costs_a_hit_and_heals(found, name):
    cold, hurt, healed = found[name]
    assert cold.hit == 0
    assert hurt.difference(cold) <= 1e-4
    assert healed.difference(cold) <= 1e-4
    assert healed.hit >= WHOLE, f"{healed.hit} tokens hit afterwards, {WHOLE} were computed again"

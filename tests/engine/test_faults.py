# SPDX-License-Identifier: Apache-2.0
"""One engine on a store that fails in every way it can, switched while it serves."""
from __future__ import annotations

import pytest
from conftest import NAIVE

CLASSES = ["error", "busy", "stall", "drip", "cut", "torn", "flip", "lost", "gone", "late"]
CLOSE = 1e-4
STALL_S = 0.5  # LOAD_STALL_MS of the case
MARGIN_S = 1.5  # on machines that do something else as well


@pytest.fixture(scope="module")
def found(host, model, tmp_path_factory):
    if NAIVE:
        pytest.skip("the naive connector does not promise this")
    folder = tmp_path_factory.mktemp("faults")
    (folder / "store").mkdir()
    return host.call("fault_cases:faults_while_serving", host.logs / "faults.log", 240, model=model,
                     store=str(folder / "store"), control=str(folder / "faults.json"))


@pytest.mark.parametrize("name", CLASSES)
def test_every_answer_is_the_computed_one(found, name):
    served = found.served[name]
    assert found.injected.get(name, 0) > 0, f"never injected: {found.injected}"
    assert served.hurt.difference(served.cold) <= CLOSE
    assert served.later.difference(served.fresh) <= CLOSE
    assert served.healed.difference(served.cold) <= CLOSE
    assert served.healed.hit >= 768, "it hits again afterwards"


@pytest.mark.parametrize("name", ["stall", "late", "error"])
def test_a_request_waits_for_a_stalled_store_no_longer_than_the_limit(found, name):
    served = found.served[name]
    print(f"{name}: {served.hurt_s:.2f} s, computed in {served.cold_s:.2f} s")
    assert served.hurt_s <= 2 * served.cold_s + STALL_S + MARGIN_S


def test_a_broken_store_costs_less_than_a_millisecond_a_request_and_is_used_again_within_half_a_minute(found):
    outage = found.outage
    print(f"{outage.connector_ms:.3f} ms a request, used again after {outage.recovery_s:.1f} s")
    assert outage.breaker_misses >= outage.requests - 2, "the breaker was not open"  # two probes, if it took long
    assert outage.connector_ms < 1.0
    assert outage.recovery_s <= 30.0


def test_nothing_is_left_over(found):
    assert found.at_rest == (0, 0), "staging bytes in use, stores without an answer"
    assert found.descriptors[1] <= found.descriptors[0]
    assert found.threads[1] == found.threads[0]

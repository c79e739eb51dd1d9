# SPDX-License-Identifier: Apache-2.0
"""What holds for a store of files holds for one of objects: a real vLLM over `s3:` and `kvern serve`."""
from __future__ import annotations

import pytest
from conftest import kvern_only

PROMPTS = [(300, 1), (1000, 2), (2500, 3)]
CHUNK = 256
OBJECTS = sum(tokens // CHUNK for tokens, _ in PROMPTS)
FULL = 768  # what a prompt of 1,000 tokens can hit
CLOSE = 1e-4
MARGIN_S = 6.0  # attempts that are refused, on machines that do something else as well

pytestmark = kvern_only


@pytest.mark.parametrize("rdma", ["off", "auto", "ofi"])
def test_a_warm_answer_is_the_cold_one_from_the_bytes_that_were_computed(run, model, tmp_path, rdma):
    """In another process of the engine, over another process of the server."""
    folder = str(tmp_path / "serve")
    cold, stored = run("s3_cases:ask_each", model=model, folder=folder, prompts=PROMPTS, expect_objects=OBJECTS, rdma=rdma)
    warm, loaded = run("s3_cases:ask_each", model=model, folder=folder, prompts=PROMPTS, rdma=rdma)
    assert (stored[0] > 0) == (loaded[1] > 0) == (rdma != "off"), (stored, loaded)
    for (tokens, _), (first, first_blocks), (second, second_blocks) in zip(PROMPTS, cold, warm):
        assert first.hit == 0 and second.hit == tokens // CHUNK * CHUNK
        assert second.tokens == first.tokens and second.difference(first) <= CLOSE
        assert second_blocks == first_blocks


@pytest.mark.parametrize("rdma", ["off", *(pytest.param(rdma, marks=pytest.mark.slow) for rdma in ("auto", "ofi"))])
def test_a_server_that_is_killed_costs_hits_and_no_answer(run, model, tmp_path, rdma):
    found = run("s3_cases:killed_and_restarted", timeout_s=240, model=model, folder=str(tmp_path / "serve"), rdma=rdma)
    for name, trouble in found.items():
        for hurt in trouble.hurt:
            assert hurt.difference(trouble.cold) <= CLOSE, name
        assert trouble.healed.difference(trouble.cold) <= CLOSE, name
        assert trouble.healed.hit == FULL, f"{name}: it hits again when the server is back"
    assert [hurt.hit for hurt in found["idle"].hurt] == [0, 0, 0]
    assert found["idle"].slowest_s <= 2 * found["idle"].cold_s + MARGIN_S


def test_ten_seconds_of_503_cost_hits_and_no_answer(run, model, tmp_path):
    found = run("s3_cases:slow_down", timeout_s=180, model=model, folder=str(tmp_path / "serve"), seconds=10)
    assert found.hurt
    for hurt in found.hurt:
        assert hurt.difference(found.cold) <= CLOSE
    assert found.slowest_s <= 2 * found.cold_s + MARGIN_S
    assert found.healed.difference(found.cold) <= CLOSE and found.healed.hit == FULL


@pytest.mark.slow
def test_objects_that_vanish_or_rot_below_the_server_cost_hits_and_no_answer(run, model, tmp_path):
    found = run("s3_cases:removed_and_damaged", timeout_s=300, model=model, folder=str(tmp_path / "serve"))
    for name, trouble in found.items():
        assert trouble.hurt[0].difference(trouble.cold) <= CLOSE, name
        assert trouble.healed.difference(trouble.cold) <= CLOSE and trouble.healed.hit == FULL, name
        assert trouble.whole == 3, f"{name}: {trouble.whole} of 3 objects are there again"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["error", "busy", "stall", "drip", "cut", "torn", "flip", "lost", "gone", "late"])
def test_every_answer_is_the_computed_one_whatever_the_fault(faults_over_s3, name):
    served = faults_over_s3.served[name]
    assert faults_over_s3.injected.get(name, 0) > 0, faults_over_s3.injected
    assert served.hurt.difference(served.cold) <= CLOSE
    assert served.later.difference(served.fresh) <= CLOSE
    assert served.healed.difference(served.cold) <= CLOSE and served.healed.hit >= FULL


@pytest.mark.slow
def test_nothing_is_left_over(faults_over_s3):
    assert faults_over_s3.at_rest == (0, 0), "staging bytes in use, stores without an answer"
    assert faults_over_s3.threads[1] == faults_over_s3.threads[0]


@pytest.fixture(scope="module")
def faults_over_s3(host, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("s3-faults")
    return host.call("s3_cases:faults", host.logs / "s3-faults.log", 300, model=model, folder=str(folder / "serve"),
                     control=str(folder / "faults.json"))

# SPDX-License-Identifier: Apache-2.0
"""Many requests, little memory, changed minds."""
from __future__ import annotations

import random

from conftest import kvern_only
from serving import prompt_ids

OUTPUT_TOKENS = 40
CLOSE = 1e-3  # other batches, other shapes; a wrong block moves the log-probabilities by more than 0.05


def test_thirty_two_requests_in_too_little_memory(run, model, store):
    """Four prefixes, eight own ends each; the pool holds a few requests only, so that the engine preempts."""
    ends = random.Random(5)
    lengths = [(prefix, ends.randrange(40, 200)) for prefix in range(4) for _ in range(8)]
    prompts = [prompt_ids(512, 50 + prefix, 1024) + prompt_ids(end, 90 + i, 1024)
               for i, (prefix, end) in enumerate(lengths)]
    settings = {"num_gpu_blocks_override": 22, "max_model_len": 2048}
    first, second, preemptions, left = run("cases:crowd", model=model, store=str(store), prompts=prompts,
                                           output_tokens=OUTPUT_TOKENS, settings=settings, timeout_s=180)
    chosen = range(0, 32, 4)
    reference = run("cases:ask_alone", model=model, prompts=[prompts[i] for i in chosen], output_tokens=OUTPUT_TOKENS,
                    settings={"max_model_len": 2048})
    assert preemptions > 0, "the pool was too large for this test"
    assert left == 0, "blocks are still held"
    assert all(reply.finish == "length" for reply in first + second)
    for round_ in (first, second):
        for i, alone in zip(chosen, reference, strict=True):
            assert round_[i].difference(alone) <= CLOSE, i
    assert all(reply.hit >= 512 for reply in second)


def test_requests_given_up_while_they_load(run, model, store):
    cold, survivor, after, left = run("cases:aborts", model=model, store=str(store))
    for reply in (survivor, after):
        assert reply.hit >= 2816
        assert reply.difference(cold) <= CLOSE
    assert left == 0, "blocks of a request that was given up are still held"


@kvern_only
def test_a_hit_several_times_larger_than_staging(run, model, store):
    """24 MiB through 8 MiB, whole."""
    ask = {"model": model, "store": str(store), "prompts": [(6100, 1)], "settings": {"max_num_batched_tokens": 2048}}
    (cold, digests), = run("cases:ask_each", **ask, expect_objects=23)
    (warm, loaded), = run("cases:ask_each", **ask, options={"staging_mib": 8})
    assert warm.hit >= 23 * 256
    assert loaded == digests
    assert warm.difference(cold) <= CLOSE

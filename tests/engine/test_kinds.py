# SPDX-License-Identifier: Apache-2.0
"""Every kind of KV cache with a real vLLM: the warm answer is the cold one, from the bytes that were computed.

A few kinds run in `./run test engine`; all of them, and the slow cases, in `./run test kinds`.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import kvern_only
from kinds import CHUNK, KINDS, NOT_SERVED
from serving import prompt_ids

pytestmark = kvern_only
LONG = 1100 // CHUNK * CHUNK  # tokens of the long prompt in whole chunks
ATTEMPTS_MAX = 3  # loads of one request that may fail before it is computed

slow = pytest.mark.slow
KIND_NAMES = [pytest.param(name, marks=[] if kind.in_ci else slow) for name, kind in KINDS.items()]


@pytest.fixture(scope="module")
def child(host) -> Callable:
    """child("function", label, ...): runs a function of kind_cases.py, with a log of its own."""

    def call(function: str, label: str, timeout_s: float = 120, **arguments):
        log = host.logs / f"kinds-{function}-{label}.log"
        log.unlink(missing_ok=True)
        return host.call(f"kind_cases:{function}", log, timeout_s, **arguments)

    return call


@pytest.fixture(scope="module")
def sessions(child, tmp_path_factory) -> Callable:
    """sessions(name): a kind's cold engine and its warm one, each started once for all tests here; and their store."""

    @functools.cache
    def both(name: str):
        store = tmp_path_factory.mktemp(name)
        cold = child("cold", name, name=name, store=str(store))
        return cold, child("warm", name, name=name, store=str(store)), store

    return both


def check_same(name: str, cold, warm) -> None:
    """The answer, and every byte that was loaded."""
    assert warm.reply.difference(cold.reply) <= KINDS[name].tolerance
    for place, digest in warm.watched.loaded.items():
        assert place in cold.watched.computed, f"group and block {place} were loaded and never computed"
        assert digest == cold.watched.computed[place], f"group and block {place} hold other bytes than were computed"


@pytest.mark.parametrize("name", KIND_NAMES)
def test_warm_equals_cold(sessions, name):
    cold, warm, _ = sessions(name)
    first, again, reply = cold.asked["long"], cold.asked["long again"], warm.asked["long"]
    assert first.reply.hit == again.reply.hit == 0
    assert again.reply.difference(first.reply) <= KINDS[name].tolerance, "the engine itself answers differently"
    assert reply.reply.hit in KINDS[name].hits(1100, 1100)
    check_same(name, first, reply)
    groups = {group for group, _ in reply.watched.loaded}
    assert groups == set(range(len(KINDS[name].groups))), "not every group was loaded"
    assert warm.counters["kvern_verified_slices_total"] > 0
    assert warm.counters.get("kvern_mismatched_slices_total", 0) == 0
    assert warm.counters.get("kvern_failed_loads_total", 0) == 0


@pytest.mark.parametrize("name", KIND_NAMES)
def test_a_prompt_that_begins_alike(sessions, name):
    cold, warm, _ = sessions(name)
    assert warm.asked["fork"].watched.remote in KINDS[name].hits(1000, 1000)  # its own chunks were stored too
    check_same(name, cold.asked["fork"], warm.asked["fork"])


@pytest.mark.parametrize("name", KIND_NAMES)
def test_a_prompt_of_whole_chunks(sessions, name):
    """The last token must be computed: its logits are not in the cache."""
    cold, warm, _ = sessions(name)
    assert warm.asked["whole"].reply.hit in KINDS[name].hits(3 * CHUNK, 1100)
    check_same(name, cold.asked["whole"], warm.asked["whole"])


@pytest.mark.parametrize("name", [p for p in KIND_NAMES if KINDS[p.values[0]].local_cache])
def test_a_hit_behind_the_engines_own(sessions, name):
    cold, warm, _ = sessions(name)
    asked = warm.asked["local and remote"]
    local = next(local for local, offered in asked.watched.matches if offered is not None)
    assert 0 < local < LONG and asked.watched.remote == LONG - local
    assert asked.reply.hit == LONG
    check_same(name, cold.asked["long"], asked)

# SPDX-License-Identifier: Apache-2.0
"""Every kind of KV cache with a real vLLM: the warm answer is the cold one, from the bytes that were computed.

A few kinds run in `./run test engine`; all of them, and the slow cases, in `./run test kinds`.
"""
from __future__ import annotations

import functools
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Host, kvern_only
from kinds import CHUNK, KINDS, NOT_SERVED, Kind
from reply import Asked, Reply, Session
from serving import prompt_ids

pytestmark = kvern_only
LONG = 1100 // CHUNK * CHUNK  # tokens of the long prompt in whole chunks
ATTEMPTS_MAX = 3  # loads of one request that may fail before it is computed
OTHER_BATCHES = 1e-3  # other batches, other shapes of the sums
NOTICED = 5  # a wrong block moves log-probabilities by at least so many tolerances

slow = pytest.mark.slow
FP8_UNSERVED = KINDS["llama-fp8"].unserved_by_this_cpu


def marks(kind: Kind) -> list[pytest.MarkDecorator]:
    unserved = kind.unserved_by_this_cpu
    return ([] if kind.in_ci else [slow]) + ([pytest.mark.skip(reason=unserved)] if unserved else [])


KIND_NAMES = [pytest.param(name, marks=marks(kind)) for name, kind in KINDS.items()]


class Children:
    """children("function", label, ...): runs a function of kind_cases.py, with a log of its own."""

    def __init__(self, host: Host):
        self.host = host

    def log(self, function: str, label: str) -> Path:
        return self.host.logs / f"kinds-{function}-{label}.log"

    def __call__(self, function: str, label: str, timeout_s: float = 120, **arguments):
        log = self.log(function, label)
        log.unlink(missing_ok=True)
        return self.host.call(f"kind_cases:{function}", log, timeout_s, **arguments)


@pytest.fixture(scope="module")
def child(host) -> Children:
    return Children(host)


@pytest.fixture(scope="module")
def sessions(child, tmp_path_factory) -> Callable:
    """sessions(name): a kind's cold engine and its warm one, each started once for all tests here; and their store."""

    @functools.cache
    def both(name: str):
        store = tmp_path_factory.mktemp(name)
        cold = child("cold", name, name=name, store=str(store))
        return cold, child("warm", name, name=name, store=str(store)), store

    return both


def check_same(name: str, cold: Session, label: str, warm: Asked) -> None:
    """The answer, and every byte that was loaded: computed for this prompt, or for the one that begins alike and came
    first."""
    assert warm.reply.difference(cold.asked[label].reply) <= KINDS[name].tolerance
    computed = [cold.asked[prompt].watched.computed for prompt in (label, "long")]
    for place, digest in warm.watched.loaded.items():
        assert digest in [blocks.get(place) for blocks in computed], f"group and block {place} hold other bytes"


@pytest.mark.parametrize("name", KIND_NAMES)
def test_warm_equals_cold(sessions, name, record_property):
    cold, warm, _ = sessions(name)
    first, again, reply = cold.asked["long"], cold.asked["long again"], warm.asked["long"]
    record_property("hit tokens", reply.reply.hit)
    record_property("blocks loaded by group", dict(Counter(group for group, _ in reply.watched.loaded)))
    record_property("difference", {label: warm.asked[label].reply.difference(cold.asked[of].reply) for label, of in
                                   (("long", "long"), ("fork", "fork"), ("whole", "whole"), ("local and remote", "long"))
                                   if label in warm.asked})
    assert first.reply.hit == again.reply.hit == 0
    assert again.reply.difference(first.reply) <= KINDS[name].tolerance, "the engine itself answers differently"
    assert reply.reply.hit in KINDS[name].hits(1100, 1100)
    check_same(name, cold, "long", reply)
    groups = {group for group, _ in reply.watched.loaded}
    assert groups == set(range(len(KINDS[name].groups))), "not every group was loaded"
    assert warm.counters["kvern_verified_slices_total"] > 0
    assert warm.counters.get("kvern_mismatched_slices_total", 0) == 0
    assert warm.counters.get("kvern_failed_loads_total", 0) == 0


@pytest.mark.parametrize("name", KIND_NAMES)
def test_a_prompt_that_begins_alike(sessions, name):
    cold, warm, _ = sessions(name)
    assert warm.asked["fork"].watched.remote in KINDS[name].hits(1000, 1000)  # its own chunks were stored too
    check_same(name, cold, "fork", warm.asked["fork"])


@pytest.mark.parametrize("name", KIND_NAMES)
def test_a_prompt_of_whole_chunks(sessions, name):
    """The last token must be computed: its logits are not in the cache."""
    cold, warm, _ = sessions(name)
    assert warm.asked["whole"].reply.hit in KINDS[name].hits(3 * CHUNK, 1100)
    check_same(name, cold, "whole", warm.asked["whole"])


@pytest.mark.parametrize("name", [p for p in KIND_NAMES if KINDS[p.values[0]].local_cache])
def test_a_hit_behind_the_engines_own(sessions, name):
    cold, warm, _ = sessions(name)
    asked = warm.asked["local and remote"]
    local = next(local for local, offered in asked.watched.matches if offered is not None)
    assert 0 < local < LONG and asked.watched.remote == LONG - local
    assert asked.reply.hit == LONG
    check_same(name, cold, "long", asked)


@pytest.mark.parametrize("name", KIND_NAMES)
def test_a_reset_begins_anew(sessions, name):
    """vLLM drops its cache and the connector's when weights may have changed."""
    cold, warm, _ = sessions(name)
    assert warm.asked["after a reset"].reply.hit == 0
    check_same(name, cold, "long", warm.asked["after a reset"])


@pytest.mark.parametrize("name", KIND_NAMES)
def test_one_wrong_block_of_any_group_is_noticed(sessions, name, record_property):
    """Else none of the comparisons here would mean anything."""
    _, warm, _ = sessions(name)
    right = warm.asked["long"].reply
    for group in range(len(KINDS[name].groups)):
        wrong = warm.asked[f"spoiled {group}"].reply
        changed = changes(right, wrong)
        record_property(f"change {group}", changed)
        assert changed > NOTICED * KINDS[name].tolerance, f"group {group}"


def changes(right: Reply, wrong: Reply) -> float:
    """How far the log-probabilities of the first token are apart, of the tokens that both name."""
    first, other = right.logprobs[0], wrong.logprobs[0]
    return max((abs(first[token] - other[token]) for token in first.keys() & other.keys()), default=float("inf"))


# -------------------------------------------------------------------------------------------------------------- damage


def damages(name: str) -> list[tuple[int, str]]:
    """One of each kind of group; both damages to it."""
    groups = KINDS[name].groups
    return [(groups.index(kind), damage) for kind in sorted(set(groups))
            for damage in ("a flipped bit", "a removed object")]


DAMAGED = [pytest.param(name, marks=[] if name == "gemma2" else slow)
           for name in ("gemma2", "gemma3", "gpt-oss", "mistral-sw", "deepseek-v3", "granite-hybrid", "qwen3-next")]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_object_costs_a_hit_and_heals(child, name, tmp_path):
    """The damage is done after the engine came to believe that the object is there, so that the load fails."""
    for (group, damage), hurt in zip(damages(name), child("damaged", name, name=name, store=str(tmp_path),
                                                          damages=damages(name)), strict=True):
        what = f"{damage} in group {group}"
        assert hurt.computed.reply.hit == 0
        assert hurt.failed_loads >= 1, what
        assert hurt.hurt.watched.loads <= ATTEMPTS_MAX, what
        if KINDS[name].groups != ("full",):  # else vLLM keeps what came before, and does not correct its count
            assert hurt.hurt.reply.hit < LONG, what
        for asked in (hurt.hurt, hurt.healed):
            assert asked.reply.finish == "length"
            assert asked.reply.difference(hurt.computed.reply) <= KINDS[name].tolerance, what
        assert hurt.healed.reply.hit == LONG, what


@pytest.mark.parametrize("name", [pytest.param(name, marks=slow) for name in
                                  ("gemma2", "gemma3", "mistral-sw", "granite-hybrid", "qwen3-next")])
def test_an_object_that_is_gone_beforehand_shortens_the_hit(sessions, child, name, tmp_path):
    """Whichever group it belongs to: a new engine finds the longest boundary that all groups can serve."""
    cold, _, _ = sessions(name)
    for group in range(len(KINDS[name].groups)):
        store = tmp_path / str(group)
        store.mkdir()
        child("cold_long", f"{name}-{group}", name=name, store=str(store), remove_last_of=group)
        asked = child("ask_long", f"{name}-{group}", name=name, store=str(store))
        assert asked.reply.hit == LONG - CHUNK, f"group {group}"
        assert asked.watched.loads == 1
        check_same(name, cold, "long", asked)


# ---------------------------------------------------------------------------------------------------------------- load


@pytest.mark.parametrize("name", [pytest.param(name, marks=slow) for name in ("llama", "gemma2", "mistral-sw")])
def test_more_requests_than_memory(child, name, tmp_path):
    """Two prefixes, three own ends each, in a pool for a few of them: the engine preempts and resumes."""
    ends = random.Random(5)
    lengths = [(prefix, ends.randrange(40, 200)) for prefix in range(2) for _ in range(3)]
    prompts = [prompt_ids(512, 50 + prefix, 1024) + prompt_ids(end, 90 + i, 1024)
               for i, (prefix, end) in enumerate(lengths)]
    # With fewer blocks for windows vLLM 0.32 can stand still: it reserves too little for requests that have been loaded.
    settings = {"num_gpu_blocks_override": 19 if name == "gemma2" else 11, "max_model_len": 1024}
    first, second, preemptions, left = child("crowd", name, name=name, store=str(tmp_path), prompts=prompts,
                                             output_tokens=100, settings=settings)
    reference = child("alone", name, name=name, prompts=prompts, output_tokens=100, settings={"max_model_len": 1024})
    assert preemptions > 0, "the pool was too large for this test"
    assert left == 0, "blocks are still held"
    for round_ in (first, second):
        for i, alone in enumerate(reference):
            assert round_[i].finish == "length"
            assert round_[i].difference(alone) <= OTHER_BATCHES, i
    assert all(reply.hit >= 512 for reply in second)


@pytest.mark.parametrize("name", ["gemma2", pytest.param("granite-hybrid", marks=slow)])
def test_requests_given_up_while_they_load(child, name, tmp_path):
    cold, survivor, after, left = child("aborts", name, name=name, store=str(tmp_path), tokens=2600)
    for reply in (survivor, after):
        assert reply.hit >= 2560
        assert reply.difference(cold) <= OTHER_BATCHES
    assert left == 0, "blocks of a request that was given up are still held"


# ------------------------------------------------------------------------------------------------------- what is apart


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "granite-hybrid" else slow)
                                  for name in NOT_SERVED])
def test_states_that_nobody_keeps_are_not_served(child, name, tmp_path):
    """The engine runs, and says in one sentence why nothing is offloaded and what would change that."""
    session = child("without_offload", name, name=name, store=str(tmp_path))
    first, second = session.asked["first"].reply, session.asked["second"].reply
    assert first.hit == second.hit == 0 and first.finish == "length"
    assert second.difference(first) == 0
    log = child.log("without_offload", name).read_text(errors="replace")
    said = [line for line in log.splitlines() if "running without offload" in line]
    assert len(said) == 1, said
    assert re.search(r"state.*prefix caching", said[0]), said[0]
    assert not list(tmp_path.rglob("*.g*")), "objects were stored"


@pytest.mark.skipif(bool(FP8_UNSERVED), reason=FP8_UNSERVED)
def test_another_kv_type_hits_nothing(sessions, child):
    """The objects of the fp8 cache lie in the same store, from the same weights and prompts."""
    _, _, store = sessions("llama-fp8")
    asked = child("ask_long", "bf16-after-fp8", name="llama-bf16", store=str(store))
    assert asked.reply.hit == 0 and asked.watched.loads == 0


@pytest.fixture(scope="module")
def adapters(child, tmp_path_factory) -> tuple[dict, dict]:
    """Answers in one engine, at whose end an adapter is overwritten, and in one that is started after that."""
    store, folder = str(tmp_path_factory.mktemp("lora-store")), str(tmp_path_factory.mktemp("lora"))
    live = child("adapters", "live", store=store, folder=folder)
    return live, child("adapters_again", "restarted", store=store, folder=folder)


ASKS = ["base", "one", "two", "salt a", "salt b", "salt like an adapter"]


@pytest.mark.parametrize("label", ASKS)
def test_adapters_and_salts_are_kept_apart(adapters, label):
    live, _ = adapters
    assert live[f"{label} cold"].hit == 0, "something else's cache was used"
    assert live[f"{label} warm"].hit == LONG
    assert live[f"{label} warm"].difference(live[f"{label} cold"]) <= KINDS["llama"].tolerance


def test_adapters_answer_differently(adapters):
    live, _ = adapters
    answers = {tuple(live[f"{label} cold"].tokens) for label in ("base", "one", "two")}
    assert len(answers) == 3, "the adapters are too quiet for this test"


def test_an_adapter_overwritten_under_the_engine_is_computed(adapters):
    live, restarted = adapters
    assert live["one overwritten"].tokens != live["one cold"].tokens
    assert live["one overwritten"].hit == 0
    assert live["one overwritten"].difference(restarted["one computed"]) <= KINDS["llama"].tolerance


def test_an_overwritten_adapter_has_a_cache_of_its_own_after_a_restart(adapters):
    _, restarted = adapters
    assert restarted["one first"].hit == 0
    assert restarted["one second"].hit == LONG
    assert restarted["two first"].hit == LONG, "the other adapter was not touched"
    for label in ("one", "two"):
        for round_ in ("first", "second"):
            assert restarted[f"{label} {round_}"].difference(restarted[f"{label} computed"]) <= KINDS["llama"].tolerance


# --------------------------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize("name", [pytest.param(name, marks=slow) for name in ("llama", "gemma2", "deepseek-v3")])
def test_two_ranks(child, name, tmp_path):
    """Each rank stores its heads, a latent that both hold is stored once; one rank's failure fails the load of both."""
    computed, hit, hurt, again, names = child("two_ranks", name, name=name, store=str(tmp_path), timeout_s=240)
    assert computed.hit == 0
    assert hit.hit == again.hit == LONG
    for reply in (hit, hurt, again):
        assert reply.difference(computed) <= KINDS[name].tolerance
    replicated = name == "deepseek-v3"
    for stored in names.values():
        chunks = {re.sub(r"\.g.*", "", name) for name in stored}
        assert len(stored) == len(chunks) * (1 if replicated else 2)
    one_rank = child("ask_long", f"{name}-one-rank", name=name, store=str(tmp_path))
    assert one_rank.reply.hit == (LONG if replicated else 0)
    assert one_rank.reply.difference(computed) <= OTHER_BATCHES

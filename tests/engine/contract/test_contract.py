# SPDX-License-Identifier: Apache-2.0
"""The connector class against vLLM's contract: random sequences of everything that may happen to an engine.

KVERN_CONTRACT_SEQUENCES and KVERN_CONTRACT_SEED change how many sequences are played, and which.
"""
from __future__ import annotations

import os
import random
import re
from collections import Counter
from types import SimpleNamespace

import hypothesis
import pytest
from settings import CHUNK, SETTINGS
from mutants import MUTANTS, ROOT, changed
from rules import Violation
from sequence import FAULTS, Case, Player, Variant, bad_store_cases, case_strategy

from kvern.vllm import KvernMetadata, WorkerSide

SEQUENCES = int(os.environ.get("KVERN_CONTRACT_SEQUENCES", "300"))
SEED = int(os.environ.get("KVERN_CONTRACT_SEED", random.SystemRandom().randrange(1 << 32)))

FAULT_CLASSES = sorted({f"fault {rule['fault']}" for rule in FAULTS.values()})
SERVED = [name for name in SETTINGS if name in os.environ.get("KVERN_CONTRACT_SETTINGS", ",".join(SETTINGS)).split(",")]


def play(sequences: int, seed: int, settings: list[str], module: str = "kvern.vllm", shrink: bool = True,
         seen: Counter | None = None) -> Counter:
    """Plays random sequences; raises Violation with the shortest one that breaks a rule. Returns what came up."""
    seen = Counter() if seen is None else seen
    first: list[Violation] = []
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrink else [])]

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=sequences, deadline=None, database=None, phases=phases,
                         suppress_health_check=list(hypothesis.HealthCheck), report_multiple_bugs=False)
    @hypothesis.given(case_strategy(settings))
    def sequences_keep_the_rules(case: Case) -> None:
        seen["sequences"] += 1
        try:
            Player(case, seen, module).play()
        except Violation as error:
            first.append(error)
            raise

    for case in bad_store_cases(settings):
        sequences_keep_the_rules = hypothesis.example(case)(sequences_keep_the_rules)
    try:
        sequences_keep_the_rules()
    except hypothesis.errors.Flaky:
        if not first:
            raise
        raise first[0] from None  # threads and clocks: the same list need not fail twice
    return seen


@pytest.mark.parametrize("name", SERVED)
def test_a_prompt_is_stored_whole_and_found_whole_by_the_next_engine(name: str) -> None:
    """So that the rules are not kept by doing nothing."""
    seen: Counter = Counter()
    player = Player(Case(name), seen, load_stall_ms=30_000)  # no machine is too busy
    player.case = Case(name, events=(("add", 0, 100, 1, "plain"), ("restart", "drained"), ("add", 0, 100, 1, "plain")))
    player.play()
    assert seen["loaded tokens"] == 2 * (100 // CHUNK * CHUNK)  # by the second engine, and by the audit


def test_chunks_that_leave_a_device_after_results_were_asked_for_do_not_stay_there() -> None:
    """The engine has nothing else to do, and steps on until they have left."""
    variant = Variant(preemption_hook=False, results_first=True)
    Player(Case("full", variant, roomy=False, on_device=True, events=(
        ("add", 0, 40, 1, "plain"), ("damage at load", "empty", 0), ("damage at load", "empty", 0), ("again", "local cache lost"),
        ("drain",), ("reset", False, True), ("drain",), ("reset", False, False), ("damage at load", "empty", 0),
        ("session", 0, 20, 1), ("again and abort", "local cache lost", "loading"))), Counter()).play()


@pytest.mark.parametrize(("step", "computes", "saved_before", "owes", "expected"), [
    (b"work", True, False, False, True), (b"", True, False, False, False), (b"", True, False, True, True),
    (b"", False, False, True, False),  # no save comes, so nothing leaves
    (b"", False, True, True, True),  # of a runner that saves in empty steps, too
])
def test_what_a_save_will_send_out_is_told_before_it_comes(step, computes, saved_before, owes, expected) -> None:
    """Where results are asked for before the save, its chunks would stay in a device that is asked no more: also those of
    earlier steps that had found no room in staging."""
    side = WorkerSide(None, None, "{}")
    side.core = SimpleNamespace(owes_stores=lambda: owes, begin_step=lambda step: None)
    side.device, side.saved = SimpleNamespace(going_out=[]), saved_before
    metadata = KvernMetadata(step, computes)
    for _ in range(2):  # runners with handle_preemptions begin a step twice
        side.begin_step(metadata)
        assert (side.tell_scheduler() is not None) == expected


def test_random_sequences_keep_the_rules() -> None:
    print(f"\n{SEQUENCES} sequences with seed {SEED} (KVERN_CONTRACT_SEED={SEED})")
    seen = play(SEQUENCES, SEED, SERVED)
    for name, count in sorted(seen.items()):
        print(f"  {count:8} {name}")
    for wanted in ("loads", "failed loads", "preemptions", "abort loading", "abort running", *FAULT_CLASSES):
        assert seen[wanted] > 0 or SEQUENCES < 300, f"no sequence had {wanted}: {seen}"


def test_every_class_of_faults_is_drawn() -> None:
    """The classes that the store knows, as its source names them."""
    (names,) = re.findall(r"fault_names = \{(.*?)\};", (ROOT / "src" / "store" / "fault_rules.h").read_text(), re.DOTALL)
    assert sorted(re.findall(r'"(\w+)"', names)) == sorted({rule["fault"] for rule in FAULTS.values()})


def test_every_mutant_still_finds_its_line() -> None:
    for mutant in MUTANTS:
        assert changed(mutant, (ROOT / mutant.file).read_text())

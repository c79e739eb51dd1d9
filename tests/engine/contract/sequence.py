# SPDX-License-Identifier: Apache-2.0
"""A sequence: one setting and a list of events, drawn by hypothesis, played against engines on one store.

An event is a tuple whose first item is its name; `Player` has a method for each. Events are drawn without knowing the state:
one that makes no sense where it comes up does nothing, so a failing list stays valid while hypothesis shrinks it.
"""
from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine import Engine
from golden import VOCABULARY, Chain
from hypothesis import strategies as st
from settings import CHUNK, LAYERS, MAX_TOKENS, SETTINGS
from objects import Known
from rank import Variant
from rules import Violation, broken

FAMILIES = 4
LONGEST_PROMPT = 104
LOAD_STALL_MS = 250  # a load from a store that hangs ends after it
FAULTS_SEEN_AFTER_S = 0.06  # the fault store looks at its rules at most every 50 ms
AHEAD_STEPS = 15  # so many steps are waited for a request to come into a phase
PHASES = ["waiting", "loading", "loaded", "running", "preempted"]


# ------------------------------------------------------------------------------------------------------------ drawing


@dataclass(frozen=True)
class Case:
    """Everything about a sequence that is not an event."""

    setting: str
    variant: Variant = Variant()
    prefix_caching: bool = True
    roomy: bool = True  # blocks for several requests, or hardly for one
    tight_staging: bool = False
    on_device: bool = False
    events: tuple[tuple, ...] = ()

    def __str__(self) -> str:
        flags = [name for name in ("prefix_caching", "roomy", "tight_staging", "on_device") if getattr(self, name)]
        lines = [f"setting {self.setting!r}, {self.variant}, {', '.join(flags)}"]
        return "\n".join(lines + [f"  {event}" for event in self.events if event != ("nothing",)])


def prompt(family: int, length: int) -> list[int]:
    """The families share their beginnings: family n its first 24·n tokens with family 0."""
    shared, own = random.Random(7), random.Random(100 + family)
    first = [shared.randrange(1, VOCABULARY) for _ in range(24 * family)] if family else []
    rest = shared if family == 0 else own
    return (first + [rest.randrange(1, VOCABULARY) for _ in range(LONGEST_PROMPT)])[:length]


WEIGHTS = {  # of the events, in order: hypothesis shrinks towards the first ones
    "nothing": 1, "step": 6, "add": 10, "drain": 2, "again": 6, "crowd": 3, "abort": 6, "restart": 2, "reset": 2, "pause": 1,
    "damage": 3, "damage at load": 5, "session": 1, "more": 2, "again and abort": 4,
    "store": 3, "store heals": 1, "again from a bad store": 5,
}


def event_strategy() -> st.SearchStrategy:
    family = st.integers(0, FAMILIES - 1)
    outputs = st.sampled_from([1, 4, 10, 20])
    damage = st.sampled_from(sorted(DAMAGES))
    how = st.sampled_from(["plain"] * 6 + ["salt a", "salt b", "reads no cache", "aborted at once"])
    arguments = {
        "add": [family, st.sampled_from([40, 64, 80, 100, 17, 33, 5]), outputs, how],
        "step": [st.integers(1, 6)],
        "again": [st.sampled_from(["local cache lost", "restart"])],
        "again and abort": [st.sampled_from(["local cache lost", "restart"]), st.sampled_from(["loading", "loaded"])],
        "crowd": [family, st.integers(3, 5)],
        "abort": [st.sampled_from(PHASES), st.integers(0, 2)],
        "restart": [st.sampled_from(["drained", "busy"])],
        "reset": [st.booleans(), st.booleans()],
        "pause": [st.booleans()],
        "damage": [damage, st.integers(0, 7)],
        "damage at load": [damage, st.integers(0, 7)],
        "store": [st.sampled_from(sorted(FAULTS))],
        "again from a bad store": [st.sampled_from(["local cache lost", "restart"]), st.sampled_from(sorted(FAULTS))],
        "session": [family, st.sampled_from([20, 40]), outputs],
        "more": [st.integers(0, 1), st.sampled_from([3, 12, 30])],
    }
    names = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
    return st.sampled_from(names).flatmap(lambda name: st.tuples(st.just(name), *arguments.get(name, [])))


def case_strategy(settings: list[str]) -> st.SearchStrategy:
    variants = st.builds(Variant, *[st.booleans()] * 4, st.sampled_from([False, False, False, True]))
    return st.builds(Case, st.sampled_from(settings), variants, st.booleans(), st.booleans(),
                     st.sampled_from([False, False, True]), st.sampled_from([False, False, True]),
                     st.lists(event_strategy(), min_size=8, max_size=24).map(tuple))


def bad_store_cases(settings: list[str]) -> list[Case]:
    """One for each thing in FAULTS, while chunks are stored and while they are loaded: chance may leave one out."""
    return [Case(settings[i % len(settings)], events=(
        ("store", fault), ("add", 0, 100, 4, "plain"), ("drain",), ("add", 1, 100, 4, "plain"), ("drain",),
        ("again from a bad store", "local cache lost", fault), ("drain",))) for i, fault in enumerate(sorted(FAULTS))]


# ------------------------------------------------------------------------------------------------------------- damage


def _flip(path: Path, at: float) -> None:
    size = path.stat().st_size
    if size == 0:
        return
    with path.open("r+b") as file:
        file.seek(int((size - 1) * at))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))


def _swap(first: Path, second: Path) -> None:
    """Each under the other's name, published as a store would: a reader sees one whole object or the other."""
    aside = first.with_name(first.name + ".aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


DAMAGES: dict[str, Callable[[Path, list[Path]], None]] = {
    "flip a bit of the header": lambda path, _: _flip(path, 0.0),
    "flip a bit in the middle": lambda path, _: _flip(path, 0.5),
    "flip the last bit": lambda path, _: _flip(path, 1.0),
    "truncate": lambda path, _: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path, _: os.truncate(path, 0),
    "remove": lambda path, _: path.unlink(),
    "remove all": lambda _, paths: [path.unlink() for path in paths],
    "swap with another": lambda path, paths: _swap(path, paths[(paths.index(path) + 1) % len(paths)]),
}


# What a store may do: docs/operations.md, A rehearsal. The slow ones lie on both sides of LOAD_STALL_MS.
FAULTS: dict[str, dict] = {
    "reads fail": {"fault": "error", "ops": ["get"]},
    "some reads fail": {"fault": "error", "ops": ["get"], "every": 3},
    "writes fail": {"fault": "error", "ops": ["put"]},
    "busy": {"fault": "busy", "ops": ["get", "put"], "every": 2},
    "reads hang": {"fault": "stall", "ops": ["get"]},
    "one read hangs": {"fault": "stall", "ops": ["get"], "times": 1},
    "reads are slow": {"fault": "stall", "ops": ["get"], "ms": 60, "probability": 0.5},
    "reads come too late": {"fault": "late", "ops": ["get"], "ms": 350, "every": 2},
    "lookups hang": {"fault": "stall", "ops": ["stat"]},
    "lookups fail": {"fault": "error", "ops": ["stat"]},
    "everything hangs": {"fault": "stall"},
    "half of the bytes, said to be all": {"fault": "torn", "ops": ["get", "put"], "every": 2},
    "half of the bytes": {"fault": "cut", "ops": ["get", "put"], "every": 2},
    "wrong bits": {"fault": "flip", "ops": ["get", "put"], "every": 3},
    "writes are lost": {"fault": "lost", "ops": ["put"], "every": 2},
    "objects vanish": {"fault": "gone", "ops": ["get", "stat"], "every": 2},
    "objects vanish between lookup and load": {"fault": "gone", "ops": ["get"], "every": 2},
    "nothing can be removed": {"fault": "lost", "ops": ["remove"]},
    "bytes drip": {"fault": "drip", "bytes_per_second": 100_000},
}


def stored(store: Path) -> list[Path]:
    """All objects of a store, in the order of their names."""
    return sorted(path for path in store.glob("*/??/*.g*") if path.is_file())


# ------------------------------------------------------------------------------------------------------------- playing


@dataclass
class Asked:
    """A request that was once made: its sequence can be asked for again."""

    tokens: list[int]
    salt: str | None
    outputs: int
    skip_reading: bool = False  # it wants no cache


@dataclass
class Player:
    """Plays a case. `module`: where the connector comes from. `load_stall_ms`: its option."""

    case: Case
    seen: Counter = field(default_factory=Counter)
    module: str = "kvern.vllm"
    load_stall_ms: int = LOAD_STALL_MS

    def __post_init__(self):
        self.setting = SETTINGS[self.case.setting]
        memory = Path("/dev/shm")  # rather than a disk: thousands of small files are made and removed
        self.store = Path(tempfile.mkdtemp(prefix="kvern-contract-", dir=memory if memory.is_dir() else None))
        self.faults = self.store.with_name(self.store.name + ".faults")
        self.known = Known(self.setting)
        self.lives: list[Engine] = []
        self.asked: list[Asked] = []
        self.sessions: list[str] = []
        self.count = 0
        self.trap: Callable[[], None] | None = None

    def play(self) -> None:
        """Raises Violation with what was done up to there."""
        try:
            self.engine = self.start()
            for event in self.case.events:
                self.seen[f"event {event[0]}"] += 1
                getattr(self, "do_" + event[0].replace(" ", "_"))(*event[1:])
            self.engine.drain()
            self.stop()
            for path in stored(self.store):
                self.seen["objects judged" if self.known.check(path) else "objects not judged"] += 1
            self.audit()
        except Violation as error:
            raise Violation(f"{error}\n{self.case}") from error.__cause__
        finally:
            for engine in self.lives:
                engine.abandon()
            shutil.rmtree(self.store, ignore_errors=True)
            self.faults.unlink(missing_ok=True)

    def start(self, roomy: bool | None = None) -> Engine:
        groups = len(set(self.setting.layers))
        least = 20 + 16 * (groups - 1) + (24 if self.setting.layers == "wwwf" else 0)
        blocks = least * (3 if (self.case.roomy if roomy is None else roomy) else 1)
        engine = Engine(self.setting, self.case.variant, f"fault:{self.faults}!file://{self.store}", self.seen,
                        prefix_caching=self.case.prefix_caching or "s" in self.setting.layers, blocks=blocks,
                        module=self.module, options={"load_stall_ms": self.load_stall_ms},
                        tight_staging=self.case.tight_staging, on_device=self.case.on_device, known=self.known)
        engine.before_waiting_for_stores = self.do_store_heals
        self.lives.append(engine)
        self.seen["engines"] += 1
        reason = engine.connector.scheduler.unsupported
        # A failed load of several groups, of windows or states can be told by request only.
        served = set(self.setting.layers) <= set("fm") or not self.case.variant.old_results
        if bool(reason) == served:
            broken("I3" if reason == "" else "contract", f"the setting is {'not ' if reason else ''}served: {reason}")
        before = engine.connector.update_state_after_alloc

        def trapped(request, blocks, tokens):
            before(request, blocks, tokens)
            if tokens and self.trap:
                trap, self.trap = self.trap, None
                trap()

        engine.connector.update_state_after_alloc = trapped
        return engine

    def stop(self) -> None:
        self.do_store_heals()  # else a shutdown rightly takes its time
        self.engine.shutdown()
        self.engine.check_closed()

    def audit(self) -> None:
        """Everything that was stored and can be found is loaded once more, into a roomy engine, and is golden."""
        self.engine = self.start(roomy=True)
        for asked in self.asked:
            chain = Chain(asked.salt, 0, asked.tokens)
            last = min(len(asked.tokens) + asked.outputs, MAX_TOKENS - 2)
            self.count += 1
            self.engine.add(f"audit-{self.count}", [chain.token(i) for i in range(last)], 1, salt=asked.salt)
            self.engine.drain()
        self.stop()

    # -------------------------------------------------------------------------------------------------------- events

    def do_add(self, family: int, length: int, outputs: int, how: str) -> None:
        self.count += 1
        salt = how[-1] if how.startswith("salt") else None
        asked = Asked(prompt(family, length), salt, outputs, how == "reads no cache")
        self.asked.append(asked)
        self.engine.add(f"r{self.count}", asked.tokens, outputs, salt=salt, skip_reading=asked.skip_reading,
                        abort_at_once=how == "aborted at once")

    def do_session(self, family: int, length: int, outputs: int) -> None:
        if self.setting.pp > 1 or self.setting.drafts or self.setting.asynchronous or len(self.sessions) >= 2:
            return  # the model runner would have to know the pieces in flight
        self.count += 1
        self.sessions.append(f"s{self.count}")
        self.asked.append(Asked(prompt(family, length), None, outputs))
        self.engine.add(self.sessions[-1], self.asked[-1].tokens, outputs, resumable=True)

    def do_more(self, which: int, tokens: int) -> None:
        """The next piece of a session, where it waits for one."""
        for request_id in self.sessions[which:]:
            request = self.engine.scheduler.requests.get(request_id)
            waiting = request is not None and self.engine.phase(request) == "streaming"
            if waiting and request.num_tokens + tokens + 2 * request.max_tokens < MAX_TOKENS:
                self.engine.add(request_id, prompt(which, tokens), 2, resumable=True)
                self.seen["session pieces"] += 1

    def do_nothing(self) -> None:
        pass

    def do_crowd(self, family: int, requests: int) -> None:
        """More at once than there is memory for."""
        for i in range(requests):
            self.do_add((family + i // 2) % FAMILIES, 64 + 9 * i, 20, "plain")

    def do_step(self, steps: int) -> None:
        for _ in range(steps):
            self.engine.step()

    def do_drain(self) -> None:
        self.engine.drain()

    def do_abort(self, phase: str, which: int) -> None:
        """Gives up a request that is in that phase, which it may take some steps to come to."""
        for _ in range(AHEAD_STEPS):
            there = [r for r in self.engine.unfinished() if self.engine.phase(r) == phase]
            if there:
                return self.engine.abort(there[which % len(there)].request_id)
            if not self.engine.step():
                return

    def do_damage(self, kind: str, which: int) -> None:
        paths = stored(self.store)
        if not paths:
            return
        try:
            DAMAGES[kind](paths[which % len(paths)], paths)
            self.seen[f"damage: {kind}"] += 1
        except FileNotFoundError:
            pass  # the connector has removed it meanwhile

    def do_damage_at_load(self, kind: str, which: int) -> None:
        """The same between a lookup and its load."""

        def spring() -> None:
            self.seen["damage between lookup and load"] += 1
            self.do_damage(kind, which)

        self.trap = spring

    def do_store(self, fault: str) -> None:
        """The store begins to misbehave; when this is over, all further operations see it."""
        written = self.faults.with_name(self.faults.name + ".new")
        written.write_text(json.dumps({"seed": self.count, "rules": [FAULTS[fault]]}))
        written.rename(self.faults)
        self.seen[f"store: {fault}"] += 1
        end = time.monotonic() + FAULTS_SEEN_AFTER_S
        while (left := end - time.monotonic()) > 0:
            if not self.engine.step():
                time.sleep(left)

    def do_store_heals(self) -> None:
        self.faults.unlink(missing_ok=True)

    def do_reset(self, running: bool, connector: bool) -> None:
        self.engine.reset(running, connector)

    def do_pause(self, abort: bool) -> None:
        for request in self.engine.unfinished():
            if self.engine.phase(request) == "streaming":
                self.engine.abort(request.request_id)
        self.engine.pause(abort)

    def do_restart(self, how: str) -> None:
        if how == "drained":
            self.engine.drain()
        self.stop()
        self.engine = self.start()
        self.sessions.clear()

    def do_again(self, how: str) -> None:
        """The last prompts once more, after they were stored and vLLM has forgotten them."""
        self._lose_local_cache(how)
        self._ask_again()

    def do_again_from_a_bad_store(self, how: str, fault: str) -> None:
        """The same, and the store misbehaves from the first lookup on."""
        self._lose_local_cache(how)
        self.do_store(fault)
        self._ask_again()

    def _lose_local_cache(self, how: str) -> None:
        self.engine.drain()
        if how == "restart":
            self.do_restart("drained")
        else:
            self.engine.reset(False, False)

    def _ask_again(self) -> None:
        for asked in self.asked[-3:]:
            self.count += 1
            self.engine.add(f"r{self.count}", asked.tokens, asked.outputs, salt=asked.salt, skip_reading=asked.skip_reading)

    def do_again_and_abort(self, how: str, phase: str) -> None:
        self.do_again(how)
        self.do_abort(phase, 0)

# SPDX-License-Identifier: Apache-2.0
"""Faults under a serving engine, for test_faults.py and faults_long.py; imported where vLLM is."""
from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from cases import ask_until_hit, stored_tokens
from real_engine import CHUNK, Engine, prompt, wait_for_objects
from reply import Reply
from serving import kvern_transfer
from vllm.distributed.kv_transfer import get_kv_transfer_group

LOAD_STALL_MS = 500
# Each class in a form that the engine can't miss. Stalls last longer than a load waits.
RULES = {
    "error": {"fault": "error"},
    "busy": {"fault": "busy"},
    "stall": {"fault": "stall", "ops": ["get"], "ms": 1500},
    "drip": {"fault": "drip", "ops": ["get"], "bytes_per_second": 4e6},
    "cut": {"fault": "cut"},
    "torn": {"fault": "torn"},
    "flip": {"fault": "flip"},
    "lost": {"fault": "lost"},
    "gone": {"fault": "gone", "ops": ["get"]},
    "late": {"fault": "late", "ms": 1500},
}
TOKENS = 1000  # of the prompts: three whole chunks


class FaultyEngine(Engine):
    """An engine on a fault store around a folder or a store's URI, and the control file."""

    def __init__(self, model: str, store: str, control: str, **options):
        self.control = Path(control)
        self.set_rules()
        uri = f"fault:{control}!{store if '://' in store else f'file://{store}'}"
        transfer = kvern_transfer(uri, **{"chunk_tokens": CHUNK, "staging_mib": 64, "load_stall_ms": LOAD_STALL_MS, **options})
        super().__init__(model, transfer)
        self.sides = self.core.scheduler.connector.scheduler, get_kv_transfer_group().worker

    def set_rules(self, *rules: dict) -> None:
        fresh = self.control.with_suffix(".new")
        fresh.write_text(json.dumps({"rules": rules}))
        os.replace(fresh, self.control)
        time.sleep(0.06)  # the store looks every 50 ms

    def connector_seconds(self) -> float:
        return sum(side.reporter.connector_seconds for side in self.sides)

    def count(self, name: str) -> int:
        return sum(side.core.counters().get(name, 0) for side in self.sides)

    def injected(self) -> Counter:
        """How often each class took effect, from what both stores say."""
        seen: Counter = Counter()
        for side in self.sides:
            listed = side.core.describe_store().split("injected so far: ")[1].split(";")[0]
            seen.update({name: int(count) for name, count in re.findall(r"(\w+) (\d+)", listed)})
        return seen

    def wait_at_rest(self, timeout_s: float = 15.0) -> tuple[int, int]:
        """Staging bytes in use and stores without an answer, once they are zeros or the time is over."""
        end = time.monotonic() + timeout_s
        while (in_use := self.sides[1].core.in_use()) != (0, 0) and time.monotonic() < end:
            time.sleep(0.05)
        return in_use

    def timed(self, ids: list[int]) -> tuple[Reply, float]:
        self.wipe()
        start = time.monotonic()
        return self.ask(ids), time.monotonic() - start


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> Counter:
    """By name, but for the pools of I/O threads, which grow to their size when they are first all needed."""
    names = Counter()
    for task in Path("/proc/self/task").iterdir():
        names[(task / "comm").read_text().strip()] += 1
    names.pop("kvern-io", None)
    return Counter({name: count for name, count in names.items() if name.startswith("kvern")})


@dataclass
class Served:
    """One class of faults."""

    cold: Reply  # computed without faults
    hurt: Reply  # the same prompt under the fault
    fresh: Reply  # another one, computed and stored under it
    later: Reply  # that one again, without
    healed: Reply
    cold_s: float
    hurt_s: float


@dataclass
class Outage:
    """Every operation fails."""

    requests: int = 0
    breaker_misses: int = 0
    connector_ms: float = 0.0  # a request, with the breaker open
    recovery_s: float = 0.0  # from the end of the fault to the first hit


@dataclass
class Faults:
    served: dict[str, Served] = field(default_factory=dict)
    outage: Outage = field(default_factory=Outage)
    injected: dict[str, int] = field(default_factory=dict)
    at_rest: tuple[int, int] = (0, 0)
    descriptors: tuple[int, int] = (0, 0)  # before and after
    threads: tuple[Counter, Counter] = field(default_factory=lambda: (Counter(), Counter()))


def serve_one(engine: FaultyEngine, store: Path, seed: int, rule: dict) -> Served:
    ids, other = prompt(TOKENS, seed), prompt(TOKENS, seed + 1000)
    known = len(list(store.glob("*/??/*.g0.*")))
    cold, cold_s = engine.timed(ids)
    wait_for_objects(store, known + 3)
    engine.set_rules(rule)
    hurt, hurt_s = engine.timed(ids)
    fresh, _ = engine.timed(other)
    engine.set_rules()
    later, _ = engine.timed(other)
    return Served(cold, hurt, fresh, later, ask_until_hit(engine, ids, stored_tokens(TOKENS), 40.0), cold_s, hurt_s)


def outage(engine: FaultyEngine, stored: list[int]) -> Outage:
    """`stored`: a prompt that is in the store and that nobody asks for meanwhile."""
    engine.set_rules({"fault": "error"})
    for seed in range(4):
        engine.ask(prompt(300, 5000 + seed))
    result = Outage(requests=10)
    misses, seconds = engine.count("misses/breaker"), engine.connector_seconds()
    for seed in range(result.requests):
        engine.ask(prompt(300, 6000 + seed))
    result.breaker_misses = engine.count("misses/breaker") - misses
    result.connector_ms = (engine.connector_seconds() - seconds) * 1e3 / result.requests
    engine.set_rules()
    start = time.monotonic()
    ask_until_hit(engine, stored, stored_tokens(TOKENS), 40.0)
    result.recovery_s = time.monotonic() - start
    return result


def faults_while_serving(model: str, store: str, control: str, folder: str = "") -> Faults:
    """`folder`: where the objects of a store that is no folder can be seen."""
    engine, found = FaultyEngine(model, store, control), Faults()
    objects = Path(folder or store)
    spare = prompt(TOKENS, 4000)
    engine.ask(spare)
    wait_for_objects(objects, 3)
    ask_until_hit(engine, spare, stored_tokens(TOKENS))
    before = descriptors(), threads()
    for seed, (name, rule) in enumerate(RULES.items()):
        found.served[name] = serve_one(engine, objects, 100 + seed, rule)
    found.outage = outage(engine, spare)
    found.at_rest = engine.wait_at_rest()
    found.injected = dict(engine.injected())
    found.descriptors = before[0], descriptors()
    found.threads = before[1], threads()
    engine.close()
    return found

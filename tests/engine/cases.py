# SPDX-License-Identifier: Apache-2.0
"""What the children do: each function starts one engine, drives it and returns plain values for the test to judge."""
from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from real_engine import BLOCK, CHUNK, Engine, objects, prompt, transfer, wait_for_objects
from reply import Reply

Seen = tuple[Reply, list[int]]  # an answer and the digests of the prompt's full blocks


def stored_tokens(tokens: int) -> int:
    """How many tokens of a prompt lie in whole chunks."""
    return tokens // CHUNK * CHUNK


def ask_each(model: str, store: str, prompts: list[tuple[int, int]], options: dict | None = None,
             settings: dict | None = None, expect_objects: int = 0, output_tokens: int = 8) -> list[Seen]:
    """Asks (tokens, seed) one after the other, waits for the stores and returns answers and digests."""
    engine = Engine(model, transfer(store, **(options or {})), **(settings or {}))
    engine.wipe()
    seen = []
    for tokens, seed in prompts:
        reply = engine.ask(prompt(tokens, seed), output_tokens)
        seen.append((reply, engine.last_digests(stored_tokens(tokens) // BLOCK)))
    if expect_objects:
        wait_for_objects(Path(store), expect_objects)
    engine.close()
    return seen


def ask_alone(model: str, prompts: list[list[int]], output_tokens: int, settings: dict) -> list[Reply]:
    """The reference: no connector, one after the other."""
    engine = Engine(model, None, **settings)
    return [engine.ask(ids, output_tokens) for ids in prompts]


def zeroed_block(model: str, root: str) -> tuple[Reply, Reply]:
    """Is the model a sensitive oracle? One block that the naive connector loads is zeros; returns right and wrong."""
    import numpy as np
    from serving import naive_transfer

    engine = Engine(model, naive_transfer(Path(root)))
    right = engine.ask(prompt(1000, 1))
    victim = sorted(Path(root).glob("*.npy"))[2]
    np.save(victim, np.zeros_like(np.load(victim)))
    engine.wipe()
    return right, engine.ask(prompt(1000, 1))


# ---------------------------------------------------------------------------------------------------------- damage


def flip(path: Path, at: float) -> None:
    """Flips one bit at that fraction of the file."""
    with path.open("r+b") as file:
        file.seek(int((path.stat().st_size - 1) * at))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))


def swap(paths: list[Path]) -> None:
    """Exchanges the contents of the first two objects."""
    first, second = paths[0].read_bytes(), paths[1].read_bytes()
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)


DAMAGES: dict[str, Callable[[list[Path]], None]] = {
    "a flipped bit in the middle": lambda paths: flip(paths[1], 0.5),
    "a flipped bit at the very end": lambda paths: flip(paths[1], 1.0),
    "a flipped bit in the header": lambda paths: flip(paths[1], 0.0),
    "a flipped bit in every object": lambda paths: [flip(path, 0.7) for path in paths],
    "a truncated object": lambda paths: os.truncate(paths[1], paths[1].stat().st_size // 2),
    "an empty object": lambda paths: os.truncate(paths[1], 0),
    "a removed object": lambda paths: paths[1].unlink(),
    "all objects removed": lambda paths: [path.unlink() for path in paths],
    "two objects swapped": swap,
}


def ask_until_hit(engine: Engine, ids: list[int], hit: int, timeout_s: float = 15.0) -> Reply:
    """Asks again, with the memory wiped each time, until so many tokens are hit; the last answer in any case."""
    end = time.monotonic() + timeout_s
    while True:
        engine.wipe()
        reply = engine.ask(ids)
        if reply.hit >= hit or time.monotonic() > end:
            return reply
        time.sleep(0.1)


def damaged(model: str, store: str, names: list[str]) -> dict[str, tuple[Reply, Reply, Reply]]:
    """For each damage: the computed answer, the one with the damage, and the one after it healed."""
    engine = Engine(model, transfer(store))
    found = {}
    for seed, name in enumerate(names):
        ids, known = prompt(1000, 100 + seed), set(objects(Path(store)))
        cold = engine.ask(ids)
        wait_for_objects(Path(store), len(known) + 3)
        DAMAGES[name]([path for path in objects(Path(store)) if path not in known])
        engine.wipe()
        hurt = engine.ask(ids)
        found[name] = cold, hurt, ask_until_hit(engine, ids, stored_tokens(1000))
    engine.close()
    return found


# --------------------------------------------------------------------------------------------------- store trouble


def store_trouble(model: str, store: str, trouble: str, options: dict | None = None) -> dict[str, tuple[Reply, Reply]]:
    """The store breaks under a running engine; returns for each prompt the computed answer and a later one."""
    engine = Engine(model, transfer(store, **(options or {})))
    old, new = prompt(1000, 1), prompt(1100, 2)
    first = engine.ask(old)
    wait_for_objects(Path(store), 3)
    if trouble == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", store], check=True)
    elif trouble == "removed":
        shutil.rmtree(store)
    found = {}
    engine.wipe()
    found["old"] = first, engine.ask(old)
    computed = engine.ask(new)
    time.sleep(0.3)  # its stores fail meanwhile
    engine.wipe()
    found["new"] = computed, engine.ask(new)
    engine.wipe()
    found["old again"] = first, engine.ask(old)
    engine.close()
    return found


def full_store(model: str, store: str) -> list[tuple[Reply, Reply]]:
    """A store that has room for a few objects only: every prompt twice."""
    engine = Engine(model, transfer(store))
    pairs = []
    for seed in range(4):
        computed = engine.ask(prompt(1300, seed))
        time.sleep(0.3)
        engine.wipe()
        pairs.append((computed, engine.ask(prompt(1300, seed))))
    engine.close()
    return pairs


# ------------------------------------------------------------------------------------------------------------ load


def crowd(model: str, store: str, prompts: list[list[int]], output_tokens: int, settings: dict):
    return crowd_in(Engine(model, transfer(store), **settings), prompts, output_tokens)


def crowd_in(engine: Engine, prompts: list[list[int]], output_tokens: int):
    """All prompts at once, twice, with the memory wiped between; returns both rounds, the count of preemptions, and how
    many blocks are still held."""
    from prometheus_client import REGISTRY

    free = engine.free_blocks()
    first = engine.ask_all(prompts, output_tokens)
    time.sleep(1.0)  # the stores
    engine.wipe()
    second = engine.ask_all(prompts, output_tokens)
    preemptions = sum(sample.value for metric in REGISTRY.collect() for sample in metric.samples
                      if sample.name == "vllm:num_preemptions_total")
    left = free - engine.free_blocks()
    engine.close()
    return first, second, preemptions, left


def aborts(model: str, store: str, tokens: int = 3000):
    return aborts_in(Engine(model, transfer(store), max_num_batched_tokens=1024), prompt(tokens, 7))


def aborts_in(engine: Engine, ids: list[int]):
    """Requests that are given up while they load, after every small number of steps; nothing may be left of them."""
    cold = engine.ask(ids)
    time.sleep(1.0)  # the stores
    free = engine.free_blocks()
    engine.wipe()
    for steps in range(8):
        engine.add(f"given-up-{steps}", ids)
        for _ in range(steps):
            engine.step()
        engine.abort(f"given-up-{steps}")
    engine.add("two-a", ids)
    engine.add("two-b", ids)
    engine.step()
    engine.abort("two-a")
    survivor = engine.run_out()["two-b"]
    after = engine.ask(ids)
    engine.ask(prompt(50, 8))  # the steps in which the last loads are reported
    left = free - engine.free_blocks()
    engine.close()
    return cold, survivor, after, left


# --------------------------------------------------------------------------------------------------- configuration


def start_error(model: str, kv_transfer: dict) -> str:
    """Starts an engine that must refuse; returns what the exception says, or '' if it started."""
    try:
        Engine(model, kv_transfer)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""

# SPDX-License-Identifier: Apache-2.0
"""What the children of test_kinds.py do: engines of every kind of KV cache."""
from __future__ import annotations

import multiprocessing
import re
import time
from collections import defaultdict
from pathlib import Path

import torch
from block_watch import BlockWatch
from cases import aborts_in, ask_alone, crowd_in, flip
from kinds import CHUNK, KINDS, NOT_SERVED
from kvern import facts
from models.adapter import write_adapter
from models.kinds import write_kind
from real_engine import ROOT, Engine, prompt, transfer
from reply import Asked, Hurt, Reply, Session, Watched
from vllm.lora.request import LoRARequest
from vllm.v1.executor import multiproc_executor

MODELS = ROOT / "build" / "models"
OBJECT_NAME = re.compile(r"(?P<hash>[0-9a-f]+)\.p(?P<parent>[0-9a-f]+)\.g(?P<group>\d+)\.")
# Prompts by name: "long" is the one that is shared, "fork" begins like it, "whole" and "short" are its beginnings.
LONG_TOKENS, FORK_AT, WHOLE_TOKENS, SHORT_TOKENS = 1100, 700, 3 * CHUNK, 600
PROMPTS = {"long": prompt(LONG_TOKENS, 1), "fork": prompt(LONG_TOKENS, 1)[:FORK_AT] + prompt(300, 2),
           "whole": prompt(LONG_TOKENS, 1)[:WHOLE_TOKENS]}


def model_of(name: str) -> Path:
    """The folder with a kind's model, which is written if it is missing."""
    kind = KINDS[name]
    return write_kind(MODELS / f"kind-{kind.model}-{kind.dtype}", kind.model, kind.dtype)


def start(name: str, store: str, options: dict | None = None, **settings) -> Engine:
    """An engine for a kind, with the connector on a store."""
    settings = {"dtype": KINDS[name].dtype, "max_model_len": 4096, **KINDS[name].settings, **settings}
    engine = Engine(model_of(name), transfer(store, **(options or {})), **settings)
    if not settings.get("tensor_parallel_size"):
        context = engine.llm.llm_engine.vllm_config.compilation_config.static_forward_context
        engine.watch = BlockWatch(engine.core.scheduler, context)
    return engine


def observe(engine: Engine, answer: Reply) -> Asked:
    return Asked(answer, engine.watch.take())


def settle(store: Path, quiet_s: float = 0.4, timeout_s: float = 15.0) -> int:
    """Waits until no object has been added for a while; how many there are."""
    count, since, end = -1, time.monotonic(), time.monotonic() + timeout_s
    while time.monotonic() < end and time.monotonic() - since < quiet_s:
        now = sum(map(len, objects_by_group(store).values()))
        if now != count:
            count, since = now, time.monotonic()
        time.sleep(0.02)
    return count


def objects_by_group(store: Path) -> dict[int, list[Path]]:
    """The objects below a store's folder by their group, oldest first."""
    found = defaultdict(list)
    for path in sorted(store.glob("*/??/*.g*"), key=lambda path: (path.stat().st_mtime_ns, path.name)):
        if match := OBJECT_NAME.match(path.name):
            found[int(match["group"])].append(path)
    return found


def last_chunk(paths: list[Path]) -> Path:
    """Of the objects of one prompt and group, that of the chunk which no other one follows."""
    names = {path: OBJECT_NAME.match(path.name) for path in paths}
    parents = {name["parent"] for name in names.values()}
    return next(path for path, name in names.items() if name["hash"][:len(name["parent"])] not in parents)


# ----------------------------------------------------------------------------------------------------- cold and warm


def cold(name: str, store: str) -> Session:
    """Computes every prompt, one of them twice, and stores it."""
    engine, session = start(name, store), Session()
    for label, ids in [("before", prompt(300, 99)), *PROMPTS.items(), ("long again", PROMPTS["long"])]:
        session.asked[label] = observe(engine, engine.compute(ids))
    settle(Path(store))
    return finish(engine, session)


def warm(name: str, store: str) -> Session:
    """Asks for every prompt in a new engine, with other memory each time; then so that vLLM's own cache has a part."""
    kind, session = KINDS[name], Session()
    engine = start(name, store, **({"enable_prefix_caching": True} if kind.local_cache else {}))
    for label, ids in PROMPTS.items():
        engine.wipe()
        session.asked[label] = observe(engine, engine.ask(ids))
    if kind.local_cache:
        engine.wipe()
        engine.ask(PROMPTS["long"][:SHORT_TOKENS])
        engine.watch.take()
        session.asked["local and remote"] = observe(engine, engine.ask(PROMPTS["long"]))
    for group in range(len(kind.groups)):
        engine.wipe()
        session.asked[f"spoiled {group}"] = ask_spoiled(engine, group, session.asked["long"].watched)
    engine.wipe()
    engine.llm.reset_prefix_cache(reset_connector=True)
    session.asked["after a reset"] = observe(engine, engine.ask(PROMPTS["long"]))
    return finish(engine, session)


def ask_spoiled(engine: Engine, group: int, loaded: Watched) -> Asked:
    """The shared prompt with zeros in the last block of a group that is loaded."""
    engine.watch.spoil = max((place for place in loaded.loaded if place[0] == group), default=None)
    asked = observe(engine, engine.ask(PROMPTS["long"]))
    engine.watch.spoil = None
    return asked


def finish(engine: Engine, session: Session) -> Session:
    engine.ask(prompt(40, 98))  # the step that brings the last counters
    session.counters = engine.counters()
    engine.close()
    return session


def cold_long(name: str, store: str, remove_last_of: int) -> None:
    """Computes and stores the shared prompt; then the last object of a group is removed."""
    engine = start(name, store)
    engine.compute(PROMPTS["long"])
    settle(Path(store))
    engine.close()
    last_chunk(objects_by_group(Path(store))[remove_last_of]).unlink()


def ask_long(name: str, store: str, options: dict | None = None) -> Asked:
    """The shared prompt, once, in a new engine."""
    engine = start(name, store, options)
    engine.wipe()
    asked = observe(engine, engine.ask(PROMPTS["long"]))
    engine.close()
    return asked


def without_offload(name: str, store: str) -> Session:
    """A model that is not served: its answers, twice."""
    model, settings = name, {"dtype": "float32", "max_model_len": 4096, **NOT_SERVED[name]}
    folder = write_kind(MODELS / f"kind-{model}-{settings['dtype']}", model, settings["dtype"])
    engine, session = Engine(folder, transfer(store), **settings), Session()
    for label in ("first", "second"):
        session.asked[label] = Asked(engine.ask(PROMPTS["long"]), Watched())
    return finish(engine, session)


# ------------------------------------------------------------------------------------------------------------- damage

DAMAGES = {"a flipped bit": lambda path: flip(path, 0.6), "a removed object": lambda path: path.unlink()}


def damaged(name: str, store: str, damages: list[tuple[int, str]]) -> list[Hurt]:
    """For each (group, damage): the last object of that group is damaged between two requests."""
    kind = KINDS[name]
    engine = start(name, store, **({"enable_prefix_caching": True} if kind.local_cache else {}))
    found = []
    for seed, (group, damage) in enumerate(damages):
        ids, known = prompt(LONG_TOKENS, 200 + seed), objects_by_group(Path(store))
        engine.wipe()
        computed = observe(engine, engine.ask(ids))
        settle(Path(store))
        engine.wipe()
        engine.ask(ids)  # now the engine believes that everything is there
        engine.watch.take()
        new = [path for path in objects_by_group(Path(store))[group] if path not in known[group]]
        DAMAGES[damage](last_chunk(new))
        before = failed_loads(engine)
        engine.wipe()
        hurt = observe(engine, engine.ask(ids))
        found.append(Hurt(computed, hurt, healed(engine, ids), failed_loads(engine) - before))
    engine.close()
    return found


def failed_loads(engine: Engine) -> float:
    engine.compute(prompt(20, 97))  # the step that brings the last counters
    engine.watch.take()
    return engine.counters().get("kvern_failed_loads_total", 0.0)


def healed(engine: Engine, ids: list[int], timeout_s: float = 10.0) -> Asked:
    """Asks again until everything is hit; the last answer in any case."""
    end = time.monotonic() + timeout_s
    while True:
        engine.wipe()
        asked = observe(engine, engine.ask(ids))
        if asked.reply.hit >= LONG_TOKENS // CHUNK * CHUNK or time.monotonic() > end:
            return asked
        time.sleep(0.1)


# --------------------------------------------------------------------------------------------------------------- load


def crowd(name: str, store: str, prompts: list[list[int]], output_tokens: int, settings: dict):
    return crowd_in(start(name, store, **settings), prompts, output_tokens)


def alone(name: str, prompts: list[list[int]], output_tokens: int, settings: dict) -> list[Reply]:
    """The reference for `crowd`: no connector, one after the other."""
    return ask_alone(str(model_of(name)), prompts, output_tokens,
                     {"dtype": KINDS[name].dtype, **KINDS[name].settings, **settings})


def aborts(name: str, store: str, tokens: int):
    return aborts_in(start(name, store), prompt(tokens, 7))


# ------------------------------------------------------------------------------------------------ adapters and salts


def adapter(number: int, folder: str, seed: int | None = None) -> LoRARequest:
    """An adapter for the Llama kind; with a seed its weights are written first, over whatever is there."""
    if seed is not None:
        write_adapter(Path(folder), model_of("llama"), seed)
    return LoRARequest(f"adapter-{number}", number, folder, load_inplace=True)


facts.Adapters.CLOCK_MARGIN_S = 0.0  # files and engine live by one clock here
LORA = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 2}


def adapters(store: str, folder: str) -> dict[str, Reply]:
    """The prompt with the base model, two adapters and two salts, computed and hit; then an adapter is overwritten."""
    one, two = adapter(1, f"{folder}/one", seed=11), adapter(2, f"{folder}/two", seed=22)
    engine = start("llama", store, **LORA)
    asks = {"base": {}, "one": {"adapter": one}, "two": {"adapter": two}, "salt a": {"salt": "a"},
            "salt b": {"salt": "b"}, "salt like an adapter": {"salt": one.lora_name}}
    found = {}
    for round_ in ("cold", "warm"):
        for label, ask in asks.items():
            engine.wipe()
            found[f"{label} {round_}"] = engine.ask_as(PROMPTS["long"], **ask)
        settle(Path(store))
    engine.wipe()
    found["one overwritten"] = engine.ask_as(PROMPTS["long"], adapter=adapter(1, f"{folder}/one", seed=33))
    settle(Path(store))
    engine.close()
    return found


def adapters_again(store: str, folder: str) -> dict[str, Reply]:
    """A new engine after the overwriting: twice what the cache gives, then what is right."""
    engine, found = start("llama", store, **LORA), {}
    for label, number in (("one", 1), ("two", 2)):
        request = adapter(number, f"{folder}/{label}")
        for round_ in ("first", "second"):
            engine.wipe()
            found[f"{label} {round_}"] = engine.ask_as(PROMPTS["long"], adapter=request)
            settle(Path(store))
        found[f"{label} computed"] = engine.compute(PROMPTS["long"], request)
    engine.close()
    return found


# --------------------------------------------------------------------------------------------------- tensor parallel


def fork_workers() -> None:
    """vLLM would spawn its workers, and each would import vLLM once more: a minute. One thread each, on few cores."""
    torch.set_num_threads(1)
    multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")


def two_ranks(name: str, store: str) -> tuple[Reply, Reply, Reply, Reply, dict[int, list[str]]]:
    """Two workers: the prompt computed, hit, with one rank's object damaged, and hit again; and the objects' names."""
    fork_workers()
    engine = start(name, store, tensor_parallel_size=2, distributed_executor_backend="mp")
    ids = PROMPTS["long"]
    computed = engine.ask(ids)
    settle(Path(store))
    names = {group: [path.name for path in paths] for group, paths in objects_by_group(Path(store)).items()}
    engine.wipe()
    hit = engine.ask(ids)
    flip(objects_by_group(Path(store))[0][-1], 0.6)
    engine.wipe()
    hurt = engine.ask(ids)
    settle(Path(store))
    engine.wipe()
    again = engine.ask(ids)
    engine.close()
    return computed, hit, hurt, again, names

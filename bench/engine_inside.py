#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benches that hold vLLM in their own process: `overhead` and `load` of bench/engine.py, which starts this file.

    engine_inside.py overhead|load MODEL RESULT.json OPTIONS-AS-JSON

vLLM is imported once; each engine lives in a child of its own, and only one of them computes at a time. Time to first
token is here the time of a request with one output token, without HTTP.
"""
from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

from serving import ROOT, kvern_transfer, prompt_ids, wait_until_written

STORE = ROOT / "build" / "bench" / "store-inside"
CHUNK_TOKENS = 256
OVERHEAD_SIZES = [1024, 4096]
SEQUENCE = 3  # prompts asked back to back: the stores of one go on while the next is computed
LOAD_TOKENS = 8192 + 1  # every chunk of 8192 tokens is hit, one token is computed
PIECE_BYTES = 1 << 20
ALIGNMENT = 4096
PLAIN_THREADS = (1, 4, 16)


# --------------------------------------------------------------------------------------------- an engine in a child


def counters() -> dict[str, float]:
    """Kvern's Prometheus counters, summed over their labels."""
    from prometheus_client import REGISTRY

    sums: dict[str, float] = {}
    for metric in REGISTRY.collect():
        for sample in metric.samples:
            if sample.name.startswith("kvern_") and sample.name.endswith("_total"):
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def serve(link: Connection, model: str, transfer: dict | None, log: str) -> None:
    """The child: answers ("ask", token ids) with (seconds, hit tokens) and ("counters",) until ("end",)."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    from vllm import LLM, SamplingParams

    settings = {"kv_transfer_config": transfer} if transfer else {}
    llm = LLM(model=model, dtype="float32", enforce_eager=True, max_model_len=9000, max_num_seqs=4,
              max_num_batched_tokens=1024, enable_prefix_caching=False, disable_log_stats=False, **settings)
    params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False)
    link.send("ready")
    while (request := link.recv())[0] != "end":
        if request[0] == "counters":
            link.send(counters())
            continue
        start = time.perf_counter()
        outputs = llm.generate([{"prompt_token_ids": request[1]}], params, use_tqdm=False)
        link.send((time.perf_counter() - start, outputs[0].num_cached_tokens or 0))
    llm.llm_engine.engine_core.engine_core.shutdown()
    link.send("ended")
    os._exit(0)


class Engine:
    """An engine in a forked child, spoken to one request at a time."""

    def __init__(self, model: str, transfer: dict | None, name: str):
        self.link, theirs = multiprocessing.Pipe()
        log = str(ROOT / "build" / "bench" / "logs" / f"inside-{name}.log")
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=serve, args=(theirs, model, transfer, log), daemon=True)
        self.process.start()
        theirs.close()
        self.link.recv()

    def call(self, *request):
        self.link.send(request)
        return self.link.recv()

    def ask(self, tokens: int, seed: int) -> tuple[float, int]:
        return self.call("ask", prompt_ids(tokens, seed))

    def settled_counters(self) -> dict[str, float]:
        """The counters after two further steps of the engine, with which the last reports arrive."""
        time.sleep(0.3)
        self.ask(16, 1)
        time.sleep(0.3)
        self.ask(16, 2)
        return self.call("counters")

    def end(self) -> None:
        self.call("end")
        self.process.join()


def fresh_store(options: dict) -> dict:
    shutil.rmtree(STORE, ignore_errors=True)
    STORE.mkdir(parents=True)
    return kvern_transfer(f"file://{STORE}{options.get('uri_options', '')}", chunk_tokens=CHUNK_TOKENS)


def increase(after: dict[str, float], before: dict[str, float], name: str) -> float:
    if name not in after:
        raise SystemExit(f"there is no counter {name}; there are {sorted(after)}")
    return after[name] - before.get(name, 0.0)


# ---------------------------------------------------------------------------------------------------- the overhead


def bootstrap(values: list[float], draws: int = 4000) -> tuple[float, float]:
    """The 95 % interval of the median."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(draws * 0.025)], medians[int(draws * 0.975)]


def overhead(model: str, options: dict) -> dict:
    """Pairs of the same new prompt with and without the connector, in turn which is first; nothing ever hits."""
    engines = {"with": Engine(model, fresh_store(options), "with"), "without": Engine(model, None, "without")}
    for engine in engines.values():
        for seed in (1, 2):
            engine.ask(1500, 5_000_000 + seed)
    result = {"chunk_tokens": CHUNK_TOKENS, "sizes": {}}
    print(f"{'tokens':>7} {'pairs':>6} {'without':>11} {'with':>11} {'paired median':>14} {'95 % interval':>17}"
          f" {'calls + threads':>16}  of TTFT")
    for size in OVERHEAD_SIZES:
        taken: dict[str, list[float]] = {"with": [], "without": []}
        before = engines["with"].settled_counters()
        for turn in range(-(-options["pairs"] // SEQUENCE)):
            for name in ("with", "without") if turn % 2 else ("without", "with"):
                for i in range(SEQUENCE):
                    seconds, hit = engines[name].ask(size, size * 1000 + turn * SEQUENCE + i)
                    assert hit == 0
                    taken[name].append(seconds)
                wait_until_written(STORE, quiet_s=0.5)
        after = engines["with"].settled_counters()
        result["sizes"][size] = overhead_row(size, taken, before, after)
    for engine in engines.values():
        engine.end()
    return result


def overhead_row(size: int, taken: dict[str, list[float]], before: dict, after: dict) -> dict:
    ratios = [a / b for a, b in zip(taken["with"], taken["without"], strict=True)]
    low, high = bootstrap(ratios)
    calls = increase(after, before, "kvern_connector_seconds_total")
    threads = increase(after, before, "kvern_thread_cpu_seconds_total")
    share = (calls + threads) / sum(taken["with"])
    row = {"without_ttft_ms": statistics.median(taken["without"]) * 1e3,
           "with_ttft_ms": statistics.median(taken["with"]) * 1e3, "paired_median": statistics.median(ratios),
           "paired_interval": [low, high], "connector_seconds": calls, "thread_cpu_seconds": threads,
           "ttft_seconds": sum(taken["with"]), "share_of_ttft": share,
           "stored_chunks": increase(after, before, "kvern_stored_chunks_total"), "samples_s": taken}
    print(f"{size:7} {len(ratios):6} {row['without_ttft_ms']:8.0f} ms {row['with_ttft_ms']:8.0f} ms"
          f" {(row['paired_median'] - 1) * 100:+12.2f} % [{(low - 1) * 100:+6.2f}, {(high - 1) * 100:+6.2f}] %"
          f" {(calls + threads) * 1e3:13.1f} ms  {share * 100:.2f} %", flush=True)
    return row


# -------------------------------------------------------------------------------------------------------- the load


def plain_read(paths: list[Path], memory: memoryview, direct: bool, threads: int) -> float:
    """Reads all files into one piece of memory, pieces of 1 MiB; returns seconds."""
    places, at = [], 0
    for path in paths:
        size = path.stat().st_size
        places.append((path, at, size))
        at += -(-size // ALIGNMENT) * ALIGNMENT

    def read(place: tuple[Path, int, int]) -> None:
        path, start, size = place
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
        try:
            done = 0
            while done < size:
                length = min(PIECE_BYTES, -(-(size - done) // ALIGNMENT) * ALIGNMENT)
                done += os.preadv(fd, [memory[start + done:start + done + length]], done)
        finally:
            os.close(fd)

    start = time.perf_counter()
    if threads == 1:
        for place in places:
            read(place)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(read, places))
    return time.perf_counter() - start


def touched(size: int) -> mmap.mmap:
    """Page-aligned memory, every page there."""
    memory = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


def timed(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def load(model: str, options: dict) -> dict:
    """The same hit again and again, after each one the plain ways to get the same bytes into memory."""
    import ctypes

    engine = Engine(model, fresh_store(options), "load")
    engine.ask(1500, 5_000_001)
    wait_until_written(STORE)
    known = set(STORE.glob("*/??/*"))
    cold, _ = engine.ask(LOAD_TOKENS, 1)
    wait_until_written(STORE)
    paths = sorted(path for path in STORE.glob("*/??/*") if path not in known)
    size = sum(-(-path.stat().st_size // ALIGNMENT) * ALIGNMENT for path in paths)
    staging, blocks = touched(size), touched(size)
    addresses = [ctypes.addressof(ctypes.c_char.from_buffer(memory)) for memory in (blocks, staging)]
    direct = "direct=off" not in options.get("uri_options", "")
    rows: dict[str, list[float]] = {"kvern": [], "ttft": [], "memcpy": []}
    rows |= {f"plain_{threads}": [] for threads in PLAIN_THREADS}
    for _ in range(options["loads"]):
        before = engine.settled_counters()
        ttft, hit = engine.ask(LOAD_TOKENS, 1)
        assert hit >= LOAD_TOKENS - 1, hit
        rows["ttft"].append(ttft)
        after = engine.settled_counters()
        loads = increase(after, before, "kvern_loads_total")
        assert loads == 1, loads
        rows["kvern"].append(increase(after, before, "kvern_load_seconds_total"))
        for threads in PLAIN_THREADS:
            rows[f"plain_{threads}"].append(plain_read(paths, memoryview(staging), direct, threads))
        rows["memcpy"].append(timed(lambda: ctypes.memmove(addresses[0], addresses[1], size)))
    engine.end()
    return load_result(rows, cold, size, len(paths), direct)


def load_result(rows: dict[str, list[float]], cold: float, size: int, files: int, direct: bool) -> dict:
    """The table and the report; the plain loop that counts is the fastest of them, in each round."""
    medians = {name: statistics.median(values) for name, values in rows.items()}
    loops = [rows[f"plain_{threads}"] for threads in PLAIN_THREADS]
    ratios = [kvern / (min(plain) + memcpy)
              for kvern, memcpy, *plain in zip(rows["kvern"], rows["memcpy"], *loops, strict=True)]
    low, high = bootstrap(ratios)
    mib = size / 2**20
    print(f"{files} files, {mib:.0f} MiB, {'direct' if direct else 'buffered'} reads; medians of {len(ratios)}")
    labels = {"kvern": "Kvern: read, verify, scatter", "memcpy": "one memcpy"}
    labels |= {f"plain_{threads}": f"plain loop, {threads} thread(s)" for threads in PLAIN_THREADS}
    for name, label in labels.items():
        print(f"  {label:30} {medians[name] * 1e3:8.1f} ms {mib / medians[name]:8.0f} MiB/s")
    print(f"  Kvern / (fastest plain loop + memcpy), paired: {statistics.median(ratios):.2f} [{low:.2f}, {high:.2f}]")
    print(f"  first token after {medians['ttft'] * 1e3:.0f} ms, computed: {cold * 1e3:.0f} ms", flush=True)
    return {"bytes": size, "files": files, "direct": direct, "medians_s": medians, "cold_ttft_s": cold,
            "paired_median": statistics.median(ratios), "paired_interval": [low, high], "samples_s": rows}


def main() -> None:
    part, model, result, options = sys.argv[1:]
    output = os.dup(1)
    os.dup2(2, 1)  # what libraries print belongs to the log
    import vllm  # noqa: F401
    from vllm import LLM  # noqa: F401

    os.dup2(output, 1)
    (ROOT / "build" / "bench" / "logs").mkdir(parents=True, exist_ok=True)
    found = {"overhead": overhead, "load": load}[part](model, json.loads(options))
    Path(result).write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

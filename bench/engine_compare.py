# SPDX-License-Identifier: Apache-2.0
"""Cold and warm time to first token over HTTP: Kvern, a naive connector and LMCache 0.5.6, in one run.

For each contender one start computes and stores every prompt (cold); later starts of new processes read them back
(warm), the contenders in turn and the second time in reverse, so that a slow minute of the machine does not hit one of
them alone. A warm start asks for every size several times: vLLM's own prefix cache is off, LMCache's memory tier is
emptied before each request through its own interface, and the operating system is asked to drop the files' pages, so
that everybody reads from the disk. `page cache` is the same without that last step: who reads around the page cache
gains nothing from it.
"""
from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from serving import (PYTHON, ROOT, Answer, Process, Server, ServingError, engine_env, free_port, kvern_transfer,
                     lmcache_transfer, naive_transfer, prompt_ids, wait_until_written)

LMCACHE_PYTHON = ROOT / ".venv-lmcache" / "bin" / "python"
CHUNK_TOKENS = 256
WARM_UP = [(700, 1), (1500, 2)]  # tokens, seed
FLAGS = ["--no-enable-prefix-caching"]
LMCACHE_START_TIMEOUT_S = 120


@dataclass
class Running:
    """A server with a contender's connector, and how to empty what holds data in memory."""

    server: Server
    reset: Callable[[], None] = lambda: None


def drop_pages(folder: Path) -> None:
    """Writes the files' pages back and asks the kernel to forget them."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


# ------------------------------------------------------------------------------------------------------ contenders


@contextlib.contextmanager
def run_kvern(model: Path, folder: Path, log: Path, uri_options: str) -> Iterator[Running]:
    transfer = kvern_transfer(f"file://{folder}{uri_options}", chunk_tokens=CHUNK_TOKENS)
    with Server(model, transfer, log, flags=FLAGS) as server:
        yield Running(server)


@contextlib.contextmanager
def run_naive(model: Path, folder: Path, log: Path, _: str) -> Iterator[Running]:
    with Server(model, naive_transfer(folder), log, flags=FLAGS) as server:
        yield Running(server)


@contextlib.contextmanager
def run_lmcache(model: Path, folder: Path, log: Path, _: str) -> Iterator[Running]:
    """Its own server with a memory tier of 1 GiB and the folder as second tier; both ends new with every start."""
    port, http_port = free_port(), free_port()
    env = {"PYTHONHASHSEED": "0", "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}
    command = [str(LMCACHE_PYTHON), "-m", "lmcache.v1.multiprocess.http_server", "--http-host", "127.0.0.1",
               "--http-port", str(http_port), "--host", "127.0.0.1", "--port", str(port),
               "--chunk-size", str(CHUNK_TOKENS), "--l1-size-gb", "1", "--no-l1-use-lazy", "--eviction-policy", "LRU",
               "--supported-transfer-mode", "auto", "--disable-metrics",
               "--l2-adapter", f'{{"type": "fs", "base_path": "{folder}"}}']
    side_log = log.with_name(log.stem + "-server.log")
    with Process(command, side_log, engine_env(LMCACHE_PYTHON, env), "LMCache's server") as side:
        wait_for_port(side, http_port)
        with Server(model, lmcache_transfer(port), log, python=LMCACHE_PYTHON, env=env, flags=FLAGS) as server:
            yield Running(server, lambda: clear_lmcache(http_port))


def wait_for_port(process: Process, port: int) -> None:
    end = time.monotonic() + LMCACHE_START_TIMEOUT_S
    while time.monotonic() < end:
        process.check()
        with contextlib.suppress(OSError, http.client.HTTPException):
            http_exchange(port, "GET", "/healthcheck")
            return
        time.sleep(0.3)
    raise ServingError(f"{process.what} was not ready after {LMCACHE_START_TIMEOUT_S} s, see {process.log}")


def http_exchange(port: int, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as link:
        link.request(method, path, body, {"Content-Type": "application/json"})
        reply = link.getresponse()
        return reply.status, reply.read()


def clear_lmcache(http_port: int) -> None:
    """Empties the memory tier; the files stay."""
    status, text = http_exchange(http_port, "POST", "/cache/clear", '{"tier": "l1", "force": true}')
    if status != 200:
        raise ServingError(f"LMCache's server did not empty its memory tier: {status} {text[:200]!r}")


CONTENDERS = {"kvern": run_kvern, "naive": run_naive, "lmcache": run_lmcache}

# ------------------------------------------------------------------------------------------------------- measuring


def say(text: str) -> None:
    print(text, flush=True)


@dataclass
class Life:
    """What all lives of one contender have in common."""

    name: str
    model: Path
    folder: Path  # where it stores
    logs: Path
    uri_options: str

    @contextlib.contextmanager
    def start(self, number: int, kind: str) -> Iterator[Running]:
        """A new vLLM (and side server), warmed up with prompts of its own."""
        log = self.logs / f"compare-{self.name}-{kind}{number}.log"
        with CONTENDERS[self.name](self.model, self.folder, log, self.uri_options) as running:
            say(f"== {self.name}, {kind} start {number}: ready after {running.server.wait_ready():.0f} s")
            for tokens, seed in WARM_UP:
                running.server.complete(prompt_ids(tokens, 1000 + 100 * number + seed))
            yield running


def ask_cold(life: Life, sizes: list[int]) -> dict[int, Answer]:
    shutil.rmtree(life.folder, ignore_errors=True)
    life.folder.mkdir(parents=True)
    with life.start(0, "cold") as running:
        answers = {}
        for size in sizes:
            answers[size] = running.server.complete(prompt_ids(size, size))
            say(f"   {size:6} tokens cold {answers[size].ttft_s * 1e3:9.0f} ms")
            wait_until_written(life.folder)
    return answers


def ask_warm(life: Life, number: int, sizes: list[int], rounds: int, cold: dict[int, Answer], taken: dict) -> None:
    """Adds (contender, size, page cache?) -> seconds to `taken`; checks every answer against the cold one."""
    with life.start(number, "warm") as running:
        for kept in (False, True):
            for _ in range(rounds):
                for size in sizes:
                    running.reset()
                    if not kept:
                        drop_pages(life.folder)
                    answer = running.server.complete(prompt_ids(size, size))
                    check(life.name, size, cold[size], answer)
                    taken.setdefault((life.name, size, kept), []).append(answer.ttft_s)
        medians = {size: statistics.median(taken[life.name, size, False]) * 1e3 for size in sizes}
        say("   from disk: " + ", ".join(f"{size} tokens {medians[size]:.0f} ms" for size in sizes))


def check(name: str, size: int, cold: Answer, warm: Answer) -> None:
    """A time without a hit, or with a wrong answer, is not worth comparing."""
    if warm.cached_tokens < (size - 1) // CHUNK_TOKENS * CHUNK_TOKENS:
        raise ServingError(f"{name} hit {warm.cached_tokens} of {size} tokens: nothing to compare")
    if warm.tokens != cold.tokens:
        raise ServingError(f"{name} answered a warm prompt of {size} tokens otherwise than a cold one")


def compare(model: Path, folder: Path, names: list[str], sizes: list[int], starts: int, rounds: int,
            uri_options: str) -> dict:
    """The whole comparison; returns what goes into the report."""
    if "lmcache" in names and not LMCACHE_PYTHON.exists():
        raise ServingError("there is no .venv-lmcache: ./run setup --lmcache makes it; or use --contenders kvern,naive")
    lives = [Life(name, model, folder / f"store-{name}", folder / "logs", uri_options) for name in names]
    cold = {life.name: ask_cold(life, sizes) for life in lives}
    taken: dict[tuple[str, int, bool], list[float]] = {}
    for number in range(1, starts + 1):
        for life in lives if number % 2 else reversed(lives):
            ask_warm(life, number, sizes, rounds, cold[life.name], taken)
    rows = [row(names, size, kept, cold, taken) for kept in (False, True) for size in sizes]
    print_table(rows, names)
    return {"rows": rows, "starts": starts, "rounds": rounds, "chunk_tokens": CHUNK_TOKENS, "uri_options": uri_options}


def row(names: list[str], size: int, kept: bool, cold: dict, taken: dict) -> dict:
    """One size; milliseconds."""
    warm = {name: [round(s * 1e3, 2) for s in taken[name, size, kept]] for name in names}
    medians = {name: statistics.median(values) for name, values in warm.items()}
    ratios = {f"kvern/{name}": round(medians["kvern"] / medians[name], 3)
              for name in names if name != "kvern" and "kvern" in names}
    cold_ms = {name: round(cold[name][size].ttft_s * 1e3, 1) for name in names}
    return {"tokens": size, "page_cache": kept, "cold_ttft_ms": cold_ms, "warm_ttft_ms": medians,
            "warm_samples_ms": warm, **ratios}


def print_table(rows: list[dict], names: list[str]) -> None:
    ratios = [key for key in rows[0] if key.startswith("kvern/")]
    say("\n" + f"{'tokens':>7} {'files':>11}" + "".join(f"{name + ' cold':>14}{name + ' warm':>14}" for name in names)
        + "".join(f"{ratio:>15}" for ratio in ratios))
    for r in rows:
        say(f"{r['tokens']:7} {'page cache' if r['page_cache'] else 'disk':>11}"
            + "".join(f"{r['cold_ttft_ms'][n]:11.0f} ms{r['warm_ttft_ms'][n]:11.1f} ms" for n in names)
            + "".join(f"{r[ratio]:15.2f}" for ratio in ratios))

# SPDX-License-Identifier: Apache-2.0
"""Starts vLLM's OpenAI server with a KV connector, asks it, reads its metrics, stops it: for the demo and the benches.

Only the standard library: the server's Python may be another one than ours. Times are seconds of a monotonic clock.
"""
from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
READY_TIMEOUT_S = 600.0  # a minute on two idle cores, many on busy ones
REQUEST_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
MODEL_NAME = "tiny"


class ServingError(RuntimeError):
    """What went wrong with a server, in one sentence, and where its log is."""


def engine_env(python: Path = PYTHON, extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment that vLLM wants on a small CPU machine.

    The OpenMP library of Intel that comes with vLLM, with sleeping instead of spinning threads, keeps its speed when
    other programs use the cores; the one of GCC falls to a tenth.
    """
    env = {**os.environ, "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
           "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(min(os.cpu_count() or 2, 8)),
           "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}
    iomp = python.parent.parent / "lib" / "libiomp5.so"
    if iomp.exists():
        env |= {"LD_PRELOAD": str(iomp), "KMP_BLOCKTIME": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "build" / "release" / "python"), str(ROOT / "bench")])
    return env | (extra or {})


# ------------------------------------------------------------------------------------------------------- connectors


def kvern_transfer(store: Path | str, **options) -> dict:
    """--kv-transfer-config for Kvern on a folder (or any store URI)."""
    uri = store if isinstance(store, str) else f"file://{store}"
    return {"kv_connector": "KvernConnector", "kv_connector_module_path": "kvern.vllm", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"store": uri, **options}}


def naive_transfer(folder: Path) -> dict:
    """--kv-transfer-config for bench/naive_connector.py."""
    return {"kv_connector": "NaiveConnector", "kv_connector_module_path": "naive_connector", "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"root": str(folder)}}


def lmcache_transfer(port: int) -> dict:
    """--kv-transfer-config for LMCache's connector to its own server on this machine."""
    return {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port}}


# ----------------------------------------------------------------------------------------------------- the exchange


def prompt_ids(tokens: int, seed: int, vocabulary: int = 4096) -> list[int]:
    """A random prompt; prompts of different seeds share no prefix worth caching. Ids 256 and 257 are begin and end."""
    source = random.Random(seed)
    return [source.randrange(258, vocabulary) for _ in range(tokens)]


@dataclass
class Answer:
    """What came back for one prompt."""

    ttft_s: float = 0.0  # from sending the request to the first token
    total_s: float = 0.0
    tokens: list[str] = field(default_factory=list)
    logprobs: list[dict[str, float]] = field(default_factory=list)  # a dictionary of the likeliest tokens a position
    cached_tokens: int = 0  # as vLLM counts them: its own prefix cache and the connector's

    def logprob_difference(self, other: Answer) -> float:
        """The largest difference of a log-probability that both answers name, up to the first token that differs."""
        largest = 0.0
        for mine, theirs, a, b in zip(self.tokens, other.tokens, self.logprobs, other.logprobs):
            largest = max([largest, *(abs(a[token] - b[token]) for token in a.keys() & b.keys())])
            if mine != theirs:
                break
        return largest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def folder_bytes(folder: Path) -> int:
    """The bytes of all files below; files that vanish meanwhile count as nothing."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def wait_until_written(folder: Path, quiet_s: float = 1.0, timeout_s: float = 60.0) -> int:
    """Waits until a folder has not grown for `quiet_s`; returns its bytes."""
    end = time.monotonic() + timeout_s
    last, since = folder_bytes(folder), time.monotonic()
    while time.monotonic() < end and time.monotonic() - since < quiet_s:
        time.sleep(0.1)
        now = folder_bytes(folder)
        if now != last:
            last, since = now, time.monotonic()
    return last


def end_on_sigterm() -> None:
    """Lets SIGTERM leave by the `with` blocks, so that no server outlives its script."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Process:
    """A program of ours in a session of its own, with its output in a log file; ends with the `with` block."""

    def __init__(self, command: list[str], log: Path, env: dict[str, str], what: str):
        self.what, self.log = what, log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            output.write(f"$ {' '.join(command)}\n")
            output.flush()
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                          env=env, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def check(self) -> None:
        if self.child.poll() is not None:
            raise ServingError(f"{self.what} ended with status {self.child.returncode}, see {self.log}")

    def stop(self) -> None:
        """SIGINT to the program itself, which ends its own workers; after a while whatever is left of its session."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(STOP_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def log_tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Server(Process):
    """vLLM's OpenAI server on a free port of 127.0.0.1."""

    def __init__(self, model: Path, transfer: dict | None, log: Path, *, python: Path = PYTHON,
                 env: dict[str, str] | None = None, flags: list[str] | None = None):
        self.port = free_port()
        command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
                   "--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(self.port),
                   "--dtype", "float32", "--enforce-eager", "--max-model-len", "20000", "--max-num-seqs", "4",
                   "--enable-prompt-tokens-details", *(flags or [])]
        if transfer:
            command += ["--kv-transfer-config", json.dumps(transfer)]
        super().__init__(command, log, engine_env(python, env), "the vLLM server")

    def wait_ready(self) -> float:
        """Returns how long the start took; a line of progress every ten seconds."""
        start = said = time.monotonic()
        while True:
            self.check()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.request("GET", "/health", timeout_s=5)[0] == 200:
                    return time.monotonic() - start
            now = time.monotonic()
            if now - start > READY_TIMEOUT_S:
                raise ServingError(f"the vLLM server was not ready after {READY_TIMEOUT_S:.0f} s, see {self.log}")
            if now - said >= 10:
                said = now
                print(f"   ... starting vLLM, {now - start:.0f} s", file=sys.stderr, flush=True)
            time.sleep(0.25)

    def request(self, method: str, path: str, body: dict | None = None, timeout_s: float = REQUEST_TIMEOUT_S):
        """One exchange; returns status and body."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)) as connection:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()

    def complete(self, prompt: list[int], output_tokens: int = 8, logprobs: int = 5) -> Answer:
        """Greedy completion, streamed."""
        body = json.dumps({"model": MODEL_NAME, "prompt": prompt, "max_tokens": output_tokens, "temperature": 0,
                           "ignore_eos": True, "logprobs": logprobs, "return_tokens_as_token_ids": True,
                           "stream": True, "stream_options": {"include_usage": True}})
        answer = Answer()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_TIMEOUT_S)) as link:
            start = time.monotonic()
            link.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            reply = link.getresponse()
            if reply.status != 200:
                raise ServingError(f"the vLLM server said {reply.status}: {reply.read()[:300]!r}, see {self.log}")
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                self._take(json.loads(line[6:]), answer, time.monotonic() - start)
        answer.total_s = time.monotonic() - start
        if len(answer.tokens) != output_tokens:
            raise ServingError(f"the vLLM server sent {len(answer.tokens)} of {output_tokens} tokens, see {self.log}")
        return answer

    def _take(self, event: dict, answer: Answer, now_s: float) -> None:
        """One event of the stream."""
        if "error" in event:
            raise ServingError(f"the vLLM server said {event['error']}, see {self.log}")
        for choice in event.get("choices", []):
            if choice.get("logprobs"):
                answer.ttft_s = answer.ttft_s or now_s
                answer.tokens += choice["logprobs"]["tokens"]
                answer.logprobs += choice["logprobs"]["top_logprobs"]
        details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
        answer.cached_tokens = details.get("cached_tokens") or answer.cached_tokens

    def metrics(self) -> dict[str, float]:
        """All samples of /metrics by name, summed over their labels."""
        sums: dict[str, float] = defaultdict(float)
        for line in self.request("GET", "/metrics", timeout_s=30)[1].decode().splitlines():
            sample = re.match(r"([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)", line)
            if sample:
                sums[sample[1]] += float(sample[2])
        return dict(sums)

    def settled_metrics(self, quiet_s: float = 0.3, timeout_s: float = 5.0) -> dict[str, float]:
        """The metrics once Kvern's stand still: they arrive with the engine's next step, not with the answer."""
        end = time.monotonic() + timeout_s
        last, since = self.metrics(), time.monotonic()
        while time.monotonic() < end and time.monotonic() - since < quiet_s:
            time.sleep(0.05)
            now = self.metrics()
            if {k: v for k, v in now.items() if k.startswith("kvern_")} != \
                    {k: v for k, v in last.items() if k.startswith("kvern_")}:
                since = time.monotonic()
            last = now
        return last


def difference(after: dict[str, float], before: dict[str, float], name: str) -> float:
    return after.get(name, 0.0) - before.get(name, 0.0)


def facts(python: Path = PYTHON) -> dict[str, str | int]:
    """What somebody needs to read a measurement."""
    versions = subprocess.run(
        [str(python), "-c", "import importlib.metadata as m, platform\n"
         "print(platform.python_version(), m.version('vllm-cpu'), m.version('torch'))"],
        capture_output=True, text=True, check=True).stdout.split()
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return {"cpu": cpu[1] if cpu else "unknown", "cores": os.cpu_count() or 0,
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "kernel": os.uname().release, "load_average": os.getloadavg()[0], "python": versions[0],
            "vllm_cpu": versions[1], "torch": versions[2], "commit": commit.stdout.strip(),
            "date": time.strftime("%Y-%m-%d %H:%M:%S %z")}

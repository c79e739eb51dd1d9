#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./run demo`: how long a prompt waits for its first token, computed (cold) and read back from storage (warm).

Two starts of a real vLLM server on this machine's CPU, with Kvern on a folder: the first computes and stores, the
second knows nothing but what it finds there. vLLM's own prefix cache is on, as by default, but ends with the first
server. Both serve other prompts first, because the first requests of any server are slow. Greedy answers must agree.
Writes build/demo/report.json and build/demo/ttft.png; ends with 1 when an answer differs, when fewer tokens were hit
than are stored, or when the longest prompt gains less than promised.
"""
from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from models.llama import PRESETS, write_model
from serving import (ROOT, Answer, Server, ServingError, difference, end_on_sigterm, facts, kvern_transfer,
                     naive_transfer, prompt_ids, wait_until_written)

FOLDER = ROOT / "build" / "demo"
STORE = FOLDER / "store"
SIZES = [512, 1024, 2048, 4096, 8192, 16384]
CHUNK_TOKENS = 256
RATIO_MIN = 40.0  # of the longest prompt, cold / warm
WARM_UP_TOKENS = [700, 1500]
WARM_UP_SEED = {"cold": 1_000_000, "warm": 2_000_000}  # prompts that the other life has not seen
OUTPUT_TOKENS = 8
HIT_COUNTER = {"kvern": "kvern_hit_tokens_total", "naive": "vllm:external_prefix_cache_hits_total"}
BYTES_COUNTER = "kvern_bytes_read_total"


@dataclass
class Row:
    """One prompt, cold and warm."""

    prompt_tokens: int
    cold_ttft_ms: float
    warm_ttft_ms: float
    hit_tokens: int
    bytes_read: int
    same_tokens: bool
    max_logprob_diff: float

    @property
    def ratio(self) -> float:
        return self.cold_ttft_ms / self.warm_ttft_ms

    @property
    def hit_tokens_min(self) -> int:
        return (self.prompt_tokens - 1) // CHUNK_TOKENS * CHUNK_TOKENS


@dataclass
class Measured:
    """One prompt on one server."""

    answer: Answer
    hit_tokens: int
    bytes_read: int


def say(text: str) -> None:
    print(text, flush=True)


def measure(server: Server, tokens: int, connector: str) -> Measured:
    before = server.settled_metrics()
    answer = server.complete(prompt_ids(tokens, seed=tokens), OUTPUT_TOKENS)
    after = server.settled_metrics()
    return Measured(answer, int(difference(after, before, HIT_COUNTER[connector])),
                    int(difference(after, before, BYTES_COUNTER)))


def serve_all(name: str, sizes: list[int], connector: str) -> list[Measured]:
    """One life of a server: start, warm up with prompts of this life's own, all prompts, stop."""
    transfer = (kvern_transfer(STORE, chunk_tokens=CHUNK_TOKENS) if connector == "kvern" else naive_transfer(STORE))
    with Server(FOLDER / "model", transfer, FOLDER / f"server-{name}.log") as server:
        say(f"== {name}: starting vLLM (log: {server.log.relative_to(ROOT)})")
        say(f"   ready after {server.wait_ready():.0f} s")
        for i, tokens in enumerate(WARM_UP_TOKENS):
            server.complete(prompt_ids(tokens, seed=WARM_UP_SEED[name] + i), OUTPUT_TOKENS)
        measured = []
        for tokens in sizes:
            measured.append(measure(server, tokens, connector))
            say(f"   {tokens:6} tokens: first token after {measured[-1].answer.ttft_s * 1e3:8.0f} ms")
        wait_until_written(STORE)
    return measured


def make_rows(sizes: list[int], cold: list[Measured], warm: list[Measured]) -> list[Row]:
    return [Row(tokens, round(c.answer.ttft_s * 1e3, 1), round(w.answer.ttft_s * 1e3, 1), w.hit_tokens, w.bytes_read,
                c.answer.tokens == w.answer.tokens, c.answer.logprob_difference(w.answer))
            for tokens, c, w in zip(sizes, cold, warm)]


def print_table(rows: list[Row]) -> None:
    say(f"\n{'tokens':>7} {'cold TTFT':>12} {'warm TTFT':>12} {'ratio':>7} {'tokens hit':>11} {'MiB read':>9}"
        "  same answer?")
    for row in rows:
        answer = f"yes (logprobs within {row.max_logprob_diff:.0e})" if row.same_tokens else "NO"
        say(f"{row.prompt_tokens:7} {row.cold_ttft_ms:9.0f} ms {row.warm_ttft_ms:9.1f} ms {row.ratio:6.1f}x"
            f" {row.hit_tokens:11} {row.bytes_read / 2**20:9.1f}  {answer}")


def faults(rows: list[Row], ratio_min: float) -> list[str]:
    """What of the promise does not hold, a sentence each."""
    found = [f"{r.prompt_tokens} tokens: the warm answer differs from the cold one" for r in rows if not r.same_tokens]
    found += [f"{r.prompt_tokens} tokens: {r.hit_tokens} tokens hit, {r.hit_tokens_min} are stored"
              for r in rows if r.hit_tokens < r.hit_tokens_min]
    longest = max(rows, key=lambda row: row.prompt_tokens)
    if longest.ratio < ratio_min:
        found.append(f"{longest.prompt_tokens} tokens: warm is {longest.ratio:.1f} times faster, not {ratio_min:.0f}")
    return found


def draw(rows: list[Row], path: Path) -> None:
    """Both curves over the prompt's length, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    x = [row.prompt_tokens for row in rows]
    figure, axes = pyplot.subplots(figsize=(8, 5), dpi=130)
    for key, label, colour, marker in (("cold_ttft_ms", "cold: computed", "#c0392b", "o"),
                                       ("warm_ttft_ms", "warm: read from storage", "#1f6fb2", "s")):
        axes.plot(x, [getattr(row, key) for row in rows], marker=marker, color=colour, label=label, linewidth=2)
    for row in rows:
        axes.annotate(f"{row.ratio:.0f}×", (row.prompt_tokens, (row.cold_ttft_ms * row.warm_ttft_ms) ** 0.5),
                      ha="center", va="center", color="#555555", fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(x, [f"{tokens // 1024}K" if tokens >= 1024 else str(tokens) for tokens in x])
    axes.yaxis.set_major_formatter(lambda ms, _: f"{ms / 1e3:g} s" if ms >= 1000 else f"{ms:g} ms")
    axes.set_xlabel("prompt length (tokens)")
    axes.set_ylabel("time to first token")
    axes.set_title("Time to first token, vLLM on a CPU with Kvern on a local folder")
    axes.grid(True, which="major", alpha=0.35)
    axes.grid(True, which="minor", axis="y", alpha=0.12)
    axes.legend(loc="upper left", frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def run(sizes: list[int], connector: str, ratio_min: float) -> int:
    shutil.rmtree(STORE, ignore_errors=True)
    STORE.mkdir(parents=True)
    model = PRESETS["demo"]
    say(f"== making the model (KV cache: {model.kv_bytes_per_token} bytes a token)")
    write_model(FOLDER / "model", model)
    cold = serve_all("cold", sizes, connector)
    warm = serve_all("warm", sizes, connector)
    rows = make_rows(sizes, cold, warm)
    print_table(rows)
    trouble = faults(rows, ratio_min)
    report = {"rows": [asdict(row) for row in rows], "faults": trouble, "connector": connector,
              "chunk_tokens": CHUNK_TOKENS, "store": f"file://{STORE}", "environment": facts()}
    (FOLDER / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    draw(rows, FOLDER / "ttft.png")
    say(f"\nwritten: {(FOLDER / 'report.json').relative_to(ROOT)}, {(FOLDER / 'ttft.png').relative_to(ROOT)}")
    for sentence in trouble:
        say(f"FAULT {sentence}")
    return 1 if trouble else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="prompt lengths in tokens")
    parser.add_argument("--connector", choices=HIT_COUNTER, default="kvern")
    parser.add_argument("--ratio-min", type=float, default=RATIO_MIN, help="cold / warm that the longest prompt owes")
    args = parser.parse_args()
    end_on_sigterm()
    try:
        return run([int(size) for size in args.sizes.split(",")], args.connector, args.ratio_min)
    except ServingError as error:
        say(f"demo: {error}")
        logs = sorted(FOLDER.glob("server-*.log"), key=lambda path: path.stat().st_mtime)
        if logs:
            say("\n".join(["-- the last lines of it", *logs[-1].read_text(errors="replace").splitlines()[-25:]]))
        return 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzz targets that the preset `asan-ubsan` built: each from its own seeds, the inputs that broke it once
(fuzz/regressions/TARGET) and what earlier runs found (build/fuzz/corpus/TARGET), for its share of the time.

An input that breaks a target is kept in build/fuzz/found; put it into fuzz/regressions/TARGET with the fix.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS, BUILD = ROOT / "build" / "asan-ubsan" / "fuzz", ROOT / "build" / "fuzz"
INPUT_BYTES_MAX = 4096  # of invented inputs; seeds and regressions may be larger
# Nothing may take memory by a number in its input: the largest seed is 200 kB, a JSON document of it some MiB.
LIMITS = ["-rss_limit_mb=512", "-malloc_limit_mb=64", "-timeout=10"]
TAIL_LINES, LINE_CHARACTERS = 20, 200  # of a broken target's log, its beginning and its end
END_S = 60  # beyond its time, for a slow last input


@dataclass
class Outcome:
    """Of one target; `trouble` is empty where nothing broke."""

    target: str
    seconds: float
    runs: int
    covered: int
    trouble: str
    log: Path


def targets() -> list[str]:
    return sorted(path.stem for path in (ROOT / "fuzz").glob("*.cc") if path.stem != "main")


def fuzz(target: str, seconds: int) -> Outcome:
    """Seeds, then every known input once whatever its size, then the search."""
    program = PROGRAMS / f"kvern_fuzz_{target}"
    seeds, corpus, found = BUILD / "seeds" / target, BUILD / "corpus" / target, BUILD / "found"
    shutil.rmtree(seeds, ignore_errors=True)
    for folder in (seeds, corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    log = BUILD / f"{target}.log"
    start = time.monotonic()

    def trouble_of(*arguments: str, timeout_s: int = END_S) -> str:
        with log.open("a") as out:
            try:
                status = subprocess.run([str(program), *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                        timeout=timeout_s, cwd=BUILD, env={**os.environ, "KVERN_LOG": "off"}).returncode
            except subprocess.TimeoutExpired:
                return f"did not end within {timeout_s} s"
        return f"ended with status {status}" if status else ""

    log.write_text("")
    regressions = ROOT / "fuzz" / "regressions" / target
    known = [seeds, *([regressions] if regressions.is_dir() else [])]
    artefacts = f"-artifact_prefix={found}/{target}-"
    trouble = trouble_of(f"--seeds={seeds}")
    trouble = trouble or trouble_of(*LIMITS, artefacts, *(str(path) for folder in known for path in sorted(folder.iterdir())))
    trouble = trouble or trouble_of(*LIMITS, artefacts, f"-max_len={INPUT_BYTES_MAX}", f"-max_total_time={seconds}",
                                    "-print_final_stats=1", str(corpus), *map(str, known), timeout_s=seconds + END_S)
    text = log.read_text(errors="replace")
    runs = re.search(r"stat::number_of_executed_units: *(\d+)", text)
    covered = re.findall(r" cov: (\d+) ", text)
    return Outcome(target, time.monotonic() - start, int(runs[1]) if runs else 0, int(covered[-1]) if covered else 0,
                   trouble, log)


def write_junit(path: Path, outcomes: list[Outcome]) -> None:
    suite = ElementTree.Element("testsuite", name="fuzz")
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", name=outcome.target, time=f"{outcome.seconds:.1f}")
        if outcome.trouble:
            ElementTree.SubElement(case, "failure", message=outcome.trouble)
    ElementTree.ElementTree(suite).write(path)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run fuzz", description=__doc__.split("\n\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(targets()) + "; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="wall seconds for all of them together (default %(default)s)")
    parser.add_argument("--junit", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = args.targets or targets()
    if unknown := sorted(set(chosen) - set(targets())):
        parser.error(f"there is no target '{unknown[0]}'; the targets are {', '.join(targets())}")
    jobs = min(os.cpu_count() or 1, len(chosen))
    each_s = max(1, args.seconds * jobs // len(chosen))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(lambda target: fuzz(target, each_s), chosen))
    print(f"{'target':16} {'inputs':>10} {'covered':>8} {'seconds':>8}")
    for o in outcomes:
        print(f"{o.target:16} {o.runs:10} {o.covered:8} {o.seconds:8.1f}  {o.trouble and f'BROKEN: {o.trouble}'}".rstrip())
    for outcome in outcomes:
        if outcome.trouble:
            lines = [line[:LINE_CHARACTERS] for line in outcome.log.read_text(errors="replace").splitlines()]
            print(f"-- {outcome.log}", *lines[:TAIL_LINES], "...", *lines[-TAIL_LINES:], sep="\n")
    if args.junit:
        write_junit(args.junit / "fuzz.xml", outcomes)
    return 1 if any(outcome.trouble for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

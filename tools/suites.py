#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test suites for `./run test`: one log and one summary line a suite, the totals as the last line.

A suite is a list of steps (commands) and a folder of JUnit files that its runners write; passed, failed and skipped are
counted from those files (or from the closing lines of Python's unittest), so every test case counts once. A step that
fails without a failed case (a build error, a crash, a timeout) counts as one failed case. Times are wall seconds.
"""
from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "logs"
PYTHON = ROOT / ".venv" / "bin" / "python"
JOBS = str(os.cpu_count() or 2)
TAIL_LINES = 60  # of a failed suite's log, shown at once
SANITIZER_ENV = {
    "ASAN_OPTIONS": "abort_on_error=0:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
# Stores whose code is that of another one in the conformance suite: under a sanitizer each takes many times as long.
SAME_CODE = ("file_auto", "file_uring_depth_1", "file_threads_auto", "fault_without_rules_over_file", "fault_dripping_fast")


@dataclass
class Step:
    """One command of a suite."""

    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Suite:
    """`steps(junit_folder)` gives the commands, or a sentence that says why there is nothing to run.

    Without names the suites run that are in `./run test`; the others take long and have part of their cases elsewhere.
    """

    name: str
    about: str
    timeout_s: int
    steps: Callable[[Path], list[Step] | str]
    unnamed: bool = True


@dataclass
class Outcome:
    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""


# ------------------------------------------------------------------------------------------------------- the suites


def cmake_build(preset: str, options: list[str], targets: list[str]) -> list[Step]:
    """Configure and build a preset; with no targets everything."""
    build = ["cmake", "--build", "--preset", preset, "-j", JOBS]
    return [
        Step(["cmake", "--preset", preset, *options]),
        Step(build + (["--target", *targets] if targets else []) + ["--", "--quiet"]),
    ]


def ctest(preset: str, junit: Path, only: str = "", prefix: list[str] | None = None) -> Step:
    """Tests of a build, by default the C++ ones; each GoogleTest program writes its cases to its own JUnit file."""
    command = [*(prefix or []), "ctest", "--test-dir", f"build/{preset}", "-V", "-j", "1", "--no-tests=error"]
    command += ["--timeout", "600", *(["-R", only] if only else ["-E", "^(house|cli|fault)$"])]
    env = {**SANITIZER_ENV, "GTEST_OUTPUT": f"xml:{junit}/"}
    if preset != "release":
        env["GTEST_FILTER"] = "-" + ":".join(f"Engines/StoreConformance.*/{name}" for name in SAME_CODE)
    return Step(command, env)


def pytest(folder: str, junit: Path, *options: str, python: Path = PYTHON) -> list[Step] | str:
    """The Python tests of a folder."""
    if not list((ROOT / folder).glob("test_*.py")):
        return f"{folder} has no Python tests"
    name = folder.replace("/", "-")
    env = {"PYTHONPATH": f"{ROOT}/build/release/python", "KVERN_BUILD": f"{ROOT}/build/release"}
    return [Step([str(python), "-m", "pytest", "-q", folder, f"--junitxml={junit}/{name}.xml", *options], env)]


def release_steps(_: Path) -> list[Step]:
    return cmake_build("release", ["-DKVERN_PYTHON=ON", f"-DPython_EXECUTABLE={PYTHON}"], [])


def house_steps(junit: Path) -> list[Step]:
    return [Step(["./run", "format", "--check"]), ctest("release", junit, "^house$")]


def asan_steps(junit: Path) -> list[Step]:
    return [*cmake_build("asan-ubsan", [], []), ctest("asan-ubsan", junit)]


def tsan_steps(junit: Path) -> list[Step]:
    """Only what has threads. Without address randomisation, which this sanitizer can't stand on newer kernels."""
    rooms = ["memory", "fabric", "http", "store", "engine"]
    built = [f"kvern_{room}_tests" for room in rooms if list((ROOT / "tests" / room).glob("*_test.cc"))]
    if not built:
        return "no C++ tests of rooms with threads"
    fixed = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []
    only = "^(" + "|".join(rooms) + ")$"
    return [*cmake_build("tsan", [], built), ctest("tsan", junit, only, fixed)]


def fuzz_steps(junit: Path) -> list[Step]:
    return [*cmake_build("asan-ubsan", [], ["kvern_fuzz"]), Step([str(PYTHON), "tools/fuzz.py", "--seconds", "60", "--junit", str(junit)])]


def s3_steps(junit: Path, setup: str = "--s3", *options: str) -> list[Step]:
    """Others' S3 clients and servers, in an environment of their own."""
    python = ROOT / ".venv-interop" / "bin" / "python"
    return [Step(["./run", "setup", setup]), *pytest("tests/interop", junit, *options, python=python)]


def interop_steps(junit: Path) -> list[Step]:
    engine = pytest("tests/engine", junit, "--ignore=tests/engine/contract", "--slow", "-k", "test_s3")
    return [*s3_steps(junit, "--interop", "--all"), *engine]


def rdma_steps(junit: Path, *options: str) -> list[Step] | str:
    """Verbs without a network card, in emulated guests; they are made at the first time."""
    if os.environ.get("KVERN_SKIP_APT") and not shutil.which("qemu-system-x86_64"):
        return "there is no qemu-system-x86_64, and KVERN_SKIP_APT forbids to install it"
    return [Step(["./run", "setup", "--rdma"]), *pytest("tests/rdma", junit, *options)]


SUITES = [
    Suite("build", "release build with the Python module", 900, release_steps),
    Suite("unit", "C++ unit and conformance tests, release build", 300, lambda junit: [ctest("release", junit)]),
    Suite("house", "rules of the source tree", 600, house_steps),
    Suite("docs", "documents and deploy/ against the code", 300, lambda junit: pytest("tests/docs", junit)),
    Suite("dashboard", "the page of kvern serve in a browser", 600, lambda junit: pytest("tests/server", junit)),
    Suite("cli", "the kvern command", 300, lambda junit: [ctest("release", junit, "^cli$")]),
    Suite("python", "the connector's own Python, without an engine", 300, lambda junit: pytest("tests/python", junit)),
    Suite("user", "stores, cache and command as an ordinary user without io_uring", 600,
          lambda junit: pytest("tests/user", junit)),
    Suite("contract", "the connector against vLLM's contract, in random sequences", 600,
          lambda junit: pytest("tests/engine/contract", junit, "-rP", "--show-capture=stdout")),
    Suite("engine", "a real vLLM with the connector", 1500,
          lambda junit: pytest("tests/engine", junit, "--ignore=tests/engine/contract")),
    Suite("kinds", "every kind of KV cache with a real vLLM, the slow cases too", 3600,
          lambda junit: pytest("tests/engine", junit, "--ignore=tests/engine/contract", "--slow", "-k", "test_kinds"),
          unnamed=False),
    Suite("s3", "kvern serve and s3: with other people's clients and servers, quickly", 600, s3_steps),
    Suite("rdma", "real verbs in an emulated guest: libfabric, kvern serve, and file: on NFS over RDMA", 600, rdma_steps),
    Suite("rdma-pair", "RDMA between two emulated guests whose cable loses packets", 600,
          lambda junit: rdma_steps(junit, "--pair"), unnamed=False),
    Suite("interop", "the same with all of them, everything that takes long, and a real vLLM", 3600, interop_steps, unnamed=False),
    Suite("ceph", "s3: with Ceph's gateway, which needs root and a quarter of a minute to start", 900,
          lambda junit: s3_steps(junit, "--interop", "--all", "-k", "ceph"), unnamed=False),
    Suite("fault", "writers that die, full disks, dead mounts", 300, lambda junit: [ctest("release", junit, "^fault$")]),
    Suite("wheel", "pip install into a bare environment", 600, lambda junit: pytest("tests/wheel", junit)),
    Suite("deb", "the Debian package in a throw-away root", 300, lambda junit: pytest("tests/deb", junit)),
    Suite("asan", "the same C++ tests with address and undefined sanitizers", 1800, asan_steps),
    Suite("fuzz", "every parser, for a minute in all", 900, fuzz_steps),
    Suite("tsan", "the rooms with threads, with the thread sanitizer", 1800, tsan_steps),
]
QUICK = ["build", "unit"]
OWN_BUILD = ("asan", "fuzz", "tsan")  # need no release build


# ---------------------------------------------------------------------------------------------------------- running


def run_step(step: Step, log, deadline: float) -> str:
    """Runs one command; '' when it went well, else what went wrong. Its whole process group ends with it."""
    log.write(f"$ {' '.join(step.command)}\n")
    log.flush()
    process = subprocess.Popen(
        step.command, cwd=ROOT, env={**os.environ, **step.env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True,
    )
    try:
        status = process.wait(timeout=max(1.0, deadline - time.monotonic()))
        return "" if status == 0 else f"'{Path(step.command[0]).name}' ended with status {status}"
    except subprocess.TimeoutExpired:
        return f"'{Path(step.command[0]).name}' did not end in time"
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=20)
        raise
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what a killed or careless test left behind
        except ProcessLookupError:
            pass
        process.wait()


def count_unittest(log: str, outcome: Outcome) -> None:
    """Adds what unittest said at its end: "Ran 12 tests in 3.1s", then "OK (skipped=1)" or "FAILED (failures=2)"."""
    for ran, verdict in re.findall(r"Ran (\d+) tests? in [^\n]*\n(?:\d+: *)?\n(?:\d+: *)?([^\n]*)", log):
        parts = {key: int(number) for key, number in re.findall(r"(failures|errors|skipped)=(\d+)", verdict)}
        failed = parts.get("failures", 0) + parts.get("errors", 0)
        outcome.failed += failed
        outcome.skipped += parts.get("skipped", 0)
        outcome.passed += int(ran) - failed - parts.get("skipped", 0)


def count(junit: Path, outcome: Outcome) -> None:
    """Adds the cases of all JUnit files of a suite."""
    for path in sorted(junit.glob("*.xml")):
        try:
            cases = ElementTree.parse(path).getroot().iter("testcase")
        except ElementTree.ParseError:
            continue  # a program that crashed while writing; its step has failed and counts
        for case in cases:
            if case.find("failure") is not None or case.find("error") is not None:
                outcome.failed += 1
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                outcome.skipped += 1
            else:
                outcome.passed += 1


def run_suite(suite: Suite) -> Outcome:
    """Runs the steps of a suite up to the first that fails."""
    outcome = Outcome(suite.name)
    junit = LOGS / suite.name
    shutil.rmtree(junit, ignore_errors=True)
    junit.mkdir(parents=True)
    path = LOGS / f"{suite.name}.log"
    start = time.monotonic()
    trouble = ""
    with path.open("w") as log:
        steps = suite.steps(junit)
        if isinstance(steps, str):
            outcome.note = steps
            return outcome
        for step in steps:
            trouble = run_step(step, log, start + suite.timeout_s)
            if trouble:
                break
    outcome.seconds = time.monotonic() - start
    count(junit, outcome)
    count_unittest(path.read_text(errors="replace"), outcome)
    if trouble and not outcome.failed:
        outcome.failed = 1
    if not trouble and not (outcome.passed + outcome.failed + outcome.skipped):
        outcome.passed = 1  # a suite without cases of its own, such as a build
    if trouble:
        outcome.note = f"{trouble}, see {path.relative_to(ROOT)}"
        lines = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        print(f"-- the end of {path.relative_to(ROOT)}", *lines, "--", sep="\n", flush=True)
    return outcome


def chosen(names: list[str], quick: bool) -> list[Suite]:
    """The suites to run, in their order; the build comes with whatever needs it."""
    if quick:
        names = QUICK
    unknown = sorted(set(names) - {suite.name for suite in SUITES})
    if unknown:
        known = ", ".join(suite.name for suite in SUITES)
        raise SystemExit(f"run: there is no suite '{unknown[0]}'; the suites are {known}")
    if set(names) - set(OWN_BUILD) and "build" not in names:
        names = [*names, "build"]
    return [suite for suite in SUITES if suite.name in names or (not names and suite.unnamed)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run test", description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(f"{s.name}: {s.about}" for s in SUITES))
    parser.add_argument("--quick", action="store_true", help="only the unit tests of the release build")
    parser.add_argument("--sequences", type=int, help="how many the suite contract plays (default 300); lifts its time limit")
    args = parser.parse_args()
    if args.sequences:
        os.environ["KVERN_CONTRACT_SEQUENCES"] = str(args.sequences)
        next(suite for suite in SUITES if suite.name == "contract").timeout_s += args.sequences
    outcomes = []
    for suite in chosen(args.suites, args.quick):
        print(f"== {suite.name}: {suite.about}", flush=True)
        if outcomes and outcomes[0].name == "build" and outcomes[0].failed and suite.name not in OWN_BUILD:
            outcomes.append(Outcome(suite.name, failed=1, note="not run: the release build failed"))
            continue
        outcomes.append(run_suite(suite))
    print(f"\n{'suite':10} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for o in outcomes:
        print(f"{o.name:10} {o.passed:7} {o.failed:7} {o.skipped:8} {o.seconds:8.1f}  {o.note}".rstrip())
    numbers = ("passed", "failed", "skipped", "seconds")
    total = Outcome("all", *(sum(getattr(outcome, number) for outcome in outcomes) for number in numbers))
    print(f"{'all':10} {total.passed:7} {total.failed:7} {total.skipped:8} {total.seconds:8.1f}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())

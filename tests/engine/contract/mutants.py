#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the connector on purpose, one line at a time, and asks whether the random sequences notice. `./run mutants`.

Python mutants are modules made of changed source text; native ones are built one after the other in build/mutants, from a
copy of the sources. Each has to be found within SEQUENCES sequences; the table says by which rule, and after how many.
"""
from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TREE = ROOT / "build" / "mutants"
SEQUENCES = 300
TIMEOUT_S = 900


@dataclass(frozen=True)
class Mutant:
    """`line` stands exactly once in `file`. `rules`: those that may notice, by how a violation begins."""

    what: str
    file: str
    line: str
    instead: str
    rules: tuple[str, ...]
    settings: tuple[str, ...] = ()  # none: all

    @property
    def native(self) -> bool:
        return self.file.startswith("src/")


VLLM, DEVICE = "python/kvern/vllm.py", "python/kvern/device.py"
START, HALF = "src/engine/scheduler_start.cc", "src/engine/scheduler_half.cc"
LOADER, SAVER = "src/engine/loader.cc", "src/engine/saver.cc"
WRONG, HANG = "wrong answer", ("I1", "I11")

MUTANTS = [
    # ------------------------------------------------------------------------------------------------------ Python
    Mutant("a load is reported twice", VLLM, "return Finished(set(requests), set(failed))",
           "self.again = getattr(self, 'again', set()) | set(requests); return Finished(set(self.again), set(failed))",
           ("I2",)),
    Mutant("of two loads that end together one is reported", VLLM, "return Finished(set(requests), set(failed))",
           "return Finished(set(list(requests)[1:]), set(failed))", HANG),
    Mutant("a failed load is reported as whole", VLLM, "return Finished(set(requests), set(failed))",
           "return Finished(set(requests), set())", (WRONG,)),
    Mutant("bad blocks are not told to vLLM", VLLM, "return set() if self.core is None or self.whole else blocks",
           "return set()", (WRONG,)),
    Mutant("bad blocks are told one step late", VLLM, "blocks, self.failed.blocks = self.failed.blocks, set()",
           "blocks, self.late, self.failed.blocks = getattr(self, 'late', set()), self.failed.blocks, set()", ("I3", WRONG)),
    Mutant("failed requests are told where nothing ended", VLLM,
           "return base.KVConnectorTransferResults(finished_recving=ended.requests, failed_recving=failed)",
           "return base.KVConnectorTransferResults(finished_recving=ended.requests - failed, failed_recving=failed)",
           ("I3",)),
    Mutant("a block more is offered than was found", VLLM,
           "return (None, False) if tokens < 0 else (tokens, tokens > 0)",
           "return (None, False) if tokens < 0 else (tokens + 8 * (tokens > 16), tokens > 0)", (WRONG, "contract", *HANG)),
    Mutant("an answer without tokens is called asynchronous", VLLM,
           "return (None, False) if tokens < 0 else (tokens, tokens > 0)",
           "return (None, False) if tokens < 0 else (tokens, True)", ("contract",)),
    Mutant("skip_reading_prefix_cache is not looked at", VLLM,
           'bool(getattr(request, "skip_reading_prefix_cache", False))', "False", ("contract",)),
    Mutant("preemptions are not told", VLLM, "self.core.preempted(request_id)", "pass", (WRONG,)),
    Mutant("the end of a request is not told", VLLM, "self.core.finish(request.request_id)", "pass", (WRONG, "I8")),
    Mutant("a reset does nothing", VLLM, "self.core.reset()", "pass", (WRONG,)),
    Mutant("an error inside a call crosses into vLLM", VLLM,
           "if isinstance(told, KvernWorkerMetadata):", "if told.bad_blocks or told.troubled:", ("I6",)),
    Mutant("loads are put into blocks that the device still works on", DEVICE,
           "runtime.wait(runtime.side, runtime.record(runtime.engine()))", "pass", (WRONG, "I5")),
    Mutant("chunks leave the device before they are collected", DEVICE,
           "runtime.wait(runtime.side, runtime.record(engine))", "pass", (WRONG,)),
    Mutant("a copy counts as over when it is started", DEVICE,
           "while flights and self.runtime.over(flights[0].event):", "while flights:", (WRONG, "I5", "crash")),
    # ------------------------------------------------------------------------------------------------------ native
    Mutant("a reset before the first request is lost", START, "    if (!options_.epoch_on_reset) return;",
           "    if (!open_ || !options_.epoch_on_reset) return;", (WRONG,)),
    Mutant("a request whose load failed does not stand back", HALF,
           "request->second.retry = Request::Retry::step_aside;", "", HANG,
           ("window full", "state full")),
    Mutant("a failed chunk is believed to be there", HALF, "broken ? Belief::failed : Belief::present",
           "Belief::present", ("I4",)),
    Mutant("a full hit is offered where there are states", HALF, "return has_state_ ? std::min",
           "return false ? std::min", (WRONG, *HANG), ("state full",)),
    Mutant("an object is not checked", LOADER, "if (mismatches == 0) {", "if (true) {", (WRONG,)),
    Mutant("the staging of a read that hangs is given to somebody else", LOADER,
           "read.quarantine = staging_->quarantine(std::move(*read.lease));", "read.lease.reset();", (WRONG, "I8", "crash")),
    Mutant("what is in an object's header is not looked at", LOADER, "        if (checked) {",
           "        if (true) {", (WRONG, "crash")),
]


# ------------------------------------------------------------------------------------------------------------- one mutant


def changed(mutant: Mutant, text: str) -> str:
    if text.count(mutant.line) != 1:
        raise SystemExit(f"mutant '{mutant.what}': its line stands {text.count(mutant.line)} times in {mutant.file}")
    return text.replace(mutant.line, mutant.instead)


def make_module(mutant: Mutant) -> str:
    """A connector module with the change; returns its name."""
    import kvern.vllm as original

    def load(name: str, file: str, text: str) -> types.ModuleType:
        module = types.ModuleType(name)
        module.__file__ = str(ROOT / file)
        sys.modules[name] = module
        exec(compile(text, module.__file__, "exec"), module.__dict__)
        return module

    name = "kvern_mutant"
    if mutant.file == VLLM:
        load(name, VLLM, changed(mutant, (ROOT / VLLM).read_text()))
    elif mutant.file == DEVICE:
        load(name, VLLM, (ROOT / VLLM).read_text()).device = load("kvern_mutant_device", DEVICE,
                                                                  changed(mutant, (ROOT / DEVICE).read_text()))
    else:
        return original.__name__
    return name


def judge(mutant: Mutant, seed: int) -> str:
    """Plays against one mutant: 'FOUND <sequences> <violation>' or 'ALIVE'."""
    from settings import SETTINGS
    from rules import Violation
    from test_contract import play

    seen: Counter = Counter()
    try:
        play(SEQUENCES, seed, list(mutant.settings or SETTINGS), make_module(mutant), shrink=False, seen=seen)
        return "ALIVE"
    except Violation as error:
        return f"FOUND {seen['sequences']} {str(error).splitlines()[0]}"


def in_a_child(mutant: Mutant, seed: int, path: Path) -> str:
    """judge() in a fork, since a broken connector may crash or be unable to end; '' if there is no verdict."""
    with tempfile.TemporaryFile("w+") as verdict:
        child = os.fork()
        if child == 0:
            try:
                sys.path.insert(0, str(path))
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                verdict.write(judge(mutant, seed))
            except BaseException as error:
                verdict.write(f"{type(error).__name__}: {error}")
            finally:
                verdict.flush()
                os._exit(0)
        end = time.monotonic() + TIMEOUT_S
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return ""
            time.sleep(0.1)
        if os.WIFSIGNALED(ended[1]):
            return f"FOUND 0 crash: {signal.Signals(os.WTERMSIG(ended[1])).name}"
        verdict.seek(0)
        return verdict.read()


def build_native(mutant: Mutant) -> Path:
    """Builds the mutant's module; returns the folder for PYTHONPATH."""
    tree = TREE / "tree"
    for name in ("src", "include", "python", "cmake", "CMakeLists.txt", "CMakePresets.json", "VERSION"):
        for source in sorted((ROOT / name).rglob("*")) if (ROOT / name).is_dir() else [ROOT / name]:
            target = tree / source.relative_to(ROOT)
            text = source.read_bytes() if source.is_file() else None
            if text is not None and source.relative_to(ROOT).as_posix() == mutant.file:
                text = changed(mutant, text.decode()).encode()
            if text is not None and (not target.exists() or target.read_bytes() != text):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text)
    configure = ["cmake", "--preset", "release", "-DKVERN_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}",
                 "-DKVERN_CLI=OFF", "-DKVERN_TESTS=OFF", "-DKVERN_WERROR=OFF"]
    for command in (configure, ["cmake", "--build", "--preset", "release", "-j", str(os.cpu_count() or 2), "--target", "_core",
                                "--", "--quiet"]):
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"mutant '{mutant.what}' does not build:\n{done.stdout}{done.stderr}")
    return tree / "build" / "release" / "python"


def run(number: int) -> tuple[str, int, str, float]:
    """The verdict on one mutant: 'found', 'by another rule', 'ALIVE' or 'no verdict'; sequences; what was said; seconds."""
    mutant = MUTANTS[number]
    path = build_native(mutant) if mutant.native else ROOT / "build" / "release" / "python"
    start = time.monotonic()
    said = in_a_child(mutant, number, path)
    took = time.monotonic() - start
    if said == "ALIVE":
        return "ALIVE", SEQUENCES, "", took
    if not said.startswith("FOUND "):
        return "no verdict", 0, said or "it crashed or did not end", took
    _, sequences, said = said.split(" ", 2)
    return "found" if said.split(":", 1)[0] in mutant.rules else "by another rule", int(sequences), said, took


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only the mutants whose name or file has one of these words in it")
    parser.add_argument("--python", action="store_true", help="only those that need no build")
    args = parser.parse_args()
    chosen = [i for i, mutant in enumerate(MUTANTS)
              if not (args.python and mutant.native)
              and (not args.words or any(word in f"{mutant.what} {mutant.file}" for word in args.words))]
    if not chosen:
        raise SystemExit(f"mutants: none has {args.words} in its name")
    import conftest  # noqa: F401 (the environment)
    import rank  # noqa: F401 (vLLM, once for all children; nothing of kvern)

    alive = 0
    print(f"{'mutant':62} {'file':14} {'verdict':16} {'sequences':>9} {'seconds':>8}  said")
    for number in chosen:
        verdict, sequences, said, seconds = run(number)
        alive += verdict in ("ALIVE", "no verdict")
        print(f"{MUTANTS[number].what:62} {Path(MUTANTS[number].file).name:14} {verdict:16} {sequences:9} {seconds:8.1f}  "
              f"{said[:110]}", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} found")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())

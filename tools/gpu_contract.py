#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./run gpu-contract`: the sequences of suite contract against the newest vLLM that is built for GPUs.

The suites run vLLM's build for CPUs, which is released later. Scheduler, block pool and connector interface are Python in
both, so the wheel for GPUs is unpacked in front of it and has the torch and the other packages of .venv; its
compiled parts need CUDA and stay unused.
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "gpu-contract"
CONTRACT = ROOT / "tests" / "engine" / "contract"
# All of vLLM that the simulator has in it, and the connector.
PROBE = "import conftest, engine, kvern.vllm, vllm; print(vllm.__version__, vllm.__file__)"


def wheel(version: str) -> Path:
    """The wheel, out of the package index unless it is here already."""
    wanted = f"vllm=={version}" if version else "vllm"
    before = set(FOLDER.glob("*.whl"))
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                           "--only-binary", ":all:", "--dest", str(FOLDER), wanted])
    if done.returncode:
        raise SystemExit(f"gpu-contract: pip could not download {wanted} (its reason stands above)")
    new = set(FOLDER.glob("*.whl")) - before
    if new:
        for old in before:
            old.unlink()  # half a gigabyte each
    found = sorted(new or before, key=lambda path: path.stat().st_mtime)
    return found[-1]


def unpacked(path: Path) -> Path:
    """The folder for PYTHONPATH."""
    tree = FOLDER / path.stem
    if not tree.is_dir():
        print(f"unpacking {path.name}", flush=True)
        with zipfile.ZipFile(path) as archive:
            archive.extractall(tree.with_suffix(".part"))
        tree.with_suffix(".part").rename(tree)
    return tree


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run gpu-contract", description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", default="", metavar="VERSION", help="of the wheel (default: the newest release)")
    parser.add_argument("--sequences", type=int, default=300, help="how many are played (default 300)")
    args = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    tree = unpacked(wheel(args.vllm))
    path = [str(tree), str(ROOT / "build" / "release" / "python"), str(CONTRACT)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "KVERN_CONTRACT_SEQUENCES": str(args.sequences)}
    probe = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True)
    if probe.returncode:
        print(probe.stderr, file=sys.stderr)
        print(f"gpu-contract: {tree.name} can't be imported without a GPU in this environment, so nothing was tried: "
              f"{probe.stderr.strip().splitlines()[-1]}")
        return 1
    version, file = probe.stdout.split()[-2:]
    if not Path(file).is_relative_to(tree):
        raise SystemExit(f"gpu-contract: {file} was imported in place of {tree}")
    print(f"vLLM {version}, {args.sequences} sequences", flush=True)
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rP", "--show-capture=stdout", str(CONTRACT)], env=env,
                            cwd=ROOT).returncode
    print(f"vLLM {version}: {args.sequences} sequences {'kept the rules' if status == 0 else 'did not all keep the rules'}")
    return status


if __name__ == "__main__":
    sys.exit(main())

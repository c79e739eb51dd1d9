#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./run bench engine`: Kvern in a real vLLM against what else there is, and against doing nothing.

    ./run bench engine [compare]   cold and warm time to first token: Kvern, a naive connector, LMCache
    ./run bench engine overhead    what Kvern costs where nothing hits
    ./run bench engine load        a hit of 64 MiB against a plain loop over the same files and one memcpy

Each part prints a table and writes its part of build/bench/engine.json. One vLLM computes at a time.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]

from models.llama import PRESETS, write_model  # noqa: E402
from serving import PYTHON, ServingError, end_on_sigterm, engine_env, facts  # noqa: E402

FOLDER = ROOT / "build" / "bench"


def save(part: str, result: dict) -> Path:
    """Replaces one part of the report, keeps the others."""
    path = FOLDER / "engine.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    report[part] = {**result, "environment": facts()}
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def inside(part: str, model: Path, options: dict) -> dict:
    """Runs a part that needs vLLM in its own process: bench/engine_inside.py, in the environment of the engine."""
    result = FOLDER / f"{part}.json"
    result.unlink(missing_ok=True)
    log = FOLDER / f"{part}.log"
    program = str(ROOT / "bench" / "engine_inside.py")
    command = [str(PYTHON), program, part, str(model), str(result), json.dumps(options)]
    env = engine_env(extra={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    env["PYTHONPATH"] += f":{ROOT / 'tools'}"
    with log.open("w") as output:
        status = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stderr=output).returncode
    if status or not result.exists():
        raise ServingError(f"the {part} bench ended with status {status}, see {log}")
    return json.loads(result.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench engine", description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", default="compare", choices=["compare", "overhead", "load"])
    parser.add_argument("--sizes", default="4096,8192,16384", help="compare: prompt lengths in tokens")
    parser.add_argument("--contenders", default="kvern,naive,lmcache", help="compare: which of them")
    parser.add_argument("--starts", type=int, default=2, help="compare: how often each is started warm")
    parser.add_argument("--rounds", type=int, default=3, help="compare: warm requests of each size a start")
    parser.add_argument("--pairs", type=int, default=12, help="overhead: pairs of requests a size")
    parser.add_argument("--loads", type=int, default=9, help="load: how many")
    parser.add_argument("--uri-options", default="", help="of Kvern's store, for example ?direct=off")
    args = parser.parse_args()
    end_on_sigterm()
    FOLDER.mkdir(parents=True, exist_ok=True)
    model = write_model(ROOT / "build" / "models" / "bench", PRESETS["demo"])
    try:
        if args.part == "compare":
            from engine_compare import compare

            result = compare(model, FOLDER, args.contenders.split(","), [int(s) for s in args.sizes.split(",")],
                             args.starts, args.rounds, args.uri_options)
        elif args.part == "overhead":
            result = inside("overhead", model, {"pairs": args.pairs, "uri_options": args.uri_options})
        else:
            result = inside("load", model, {"loads": args.loads, "uri_options": args.uri_options})
    except ServingError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"written: {save(args.part, result).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

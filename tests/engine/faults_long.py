#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./run faults: a real vLLM with another random fault under it every second. Every answer is compared with the computed
one. Ends with a line of figures, and status 1 if any answer was wrong."""
from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tools"), str(HERE)]

CLOSE = 1e-3  # other batches, other shapes; a wrong block moves the log-probabilities by more than 0.05
PROMPTS = 16


def random_rules(source: random.Random, rules: dict[str, dict]) -> list[dict]:
    """None at all, or one to three classes, each with a chance of its own."""
    chosen = source.sample(sorted(rules), source.choice([0, 1, 1, 2, 3]))
    return [{**rules[name], "probability": source.choice([0.1, 0.3, 1.0]), "seed": source.randrange(1 << 30)} for name in chosen]


def serve(seconds: float, seed: int, model: str, folder: Path) -> int:
    import vllm  # noqa: F401  (before anything that it imports itself)
    from fault_cases import RULES, FaultyEngine
    from real_engine import objects, prompt

    source, store = random.Random(seed), folder / "store"
    store.mkdir()
    engine = FaultyEngine(model, str(store), str(folder / "faults.json"))
    prompts = [prompt(source.randrange(280, 2000), i) for i in range(PROMPTS)]
    computed = [engine.ask(ids) for ids in prompts]
    answered = wrong = hits = changes = 0
    worst = 0.0
    end, next_change = time.monotonic() + seconds, 0.0
    while (now := time.monotonic()) < end:
        if now >= next_change:
            engine.set_rules(*random_rules(source, RULES))
            next_change, changes = now + 1.0, changes + 1
            if found := objects(store):  # so that there is always something to store
                source.choice(found).unlink(missing_ok=True)
        chosen = [source.randrange(PROMPTS) for _ in range(source.choice([1, 1, 2, 4]))]
        engine.wipe()
        start = time.monotonic()
        for i, reply in zip(chosen, engine.ask_all([prompts[i] for i in chosen]), strict=True):
            answered, hits = answered + 1, hits + (reply.hit > 0)
            if reply.difference(computed[i]) > CLOSE:
                wrong += 1
                print(f"WRONG: prompt {i}, difference {reply.difference(computed[i])}", flush=True)
        worst = max(worst, time.monotonic() - start)
    engine.set_rules()
    at_rest = engine.wait_at_rest()
    _, slice_bytes, _ = engine.sides[1].core.slices(0)
    injected = ", ".join(f"{name} {count}" for name, count in sorted(engine.injected().items()))
    print(f"seed {seed}: {answered} requests answered in {seconds:.0f} s ({hits} with hits), {wrong} wrong; "
          f"{engine.count('verified_slices') * slice_bytes} bytes verified, "
          f"{engine.count('mismatched_slices')} mismatched slices found; slowest batch {worst:.1f} s; "
          f"left in staging {at_rest[0]} bytes; {changes} changes of the rules; injected: {injected}", flush=True)
    engine.close()
    return 1 if wrong or at_rest != (0, 0) else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long (default 300)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the same faults and prompts")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    if (model := os.environ.get("KVERN_FAULTS_MODEL")) is None:  # vLLM wants another environment from its first import on
        from models.llama import PRESETS, write_model
        from serving import PYTHON, engine_env

        made = write_model(HERE.parents[1] / "build" / "models" / "test-float32", PRESETS["test"])
        path = os.pathsep.join([engine_env()["PYTHONPATH"], str(HERE)])
        env = engine_env(extra={"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONPATH": path, "KVERN_FAULTS_MODEL": str(made)})
        command = [str(PYTHON), __file__, "--seconds", str(options.seconds), "--seed", str(seed)]
        os.execve(str(PYTHON), command, env)
    with tempfile.TemporaryDirectory(prefix="kvern-faults-") as folder:
        return serve(options.seconds, seed, model, Path(folder))


if __name__ == "__main__":
    sys.exit(main())

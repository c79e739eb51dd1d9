# SPDX-License-Identifier: Apache-2.0
"""A warm answer is the cold one, in a new process, from the bytes that were computed."""
from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import CASE_TIMEOUT_S, HERE, NAIVE, ROOT, kvern_only
from models.llama import PRESETS, write_model
from serving import PYTHON, engine_env

CHUNK = 256
# Around the end of a chunk, of a block and of a step; the last is many chunks.
LENGTHS = [300, 767, 768, 769, 895, 1000, 2500]
PROMPTS = [(tokens, 10 + i) for i, tokens in enumerate(LENGTHS)]
OBJECTS = sum(tokens // CHUNK for tokens in LENGTHS)
# A prompt of whole chunks is hit to its end: its last token is then computed alone and not among others, and a matrix
# product of another shape adds up in another order. Everything else must agree to the last bit.
OTHER_SHAPE = 5e-5


def kept(tokens: int, digests: list[int]) -> list[int]:
    """The blocks that hold what was loaded: where a prompt is hit to its end, its last token is computed anew."""
    return digests[:-1] if tokens % CHUNK == 0 else digests


@dataclass
class Stored:
    """Two cold runs of the same prompts; the store of the first is kept."""

    store: Path
    cold: list
    again: list


@pytest.fixture(scope="module")
def stored(host, model, tmp_path_factory) -> Stored:
    stores = [tmp_path_factory.mktemp("cold") for _ in range(2)]
    runs = [host.call("cases:ask_each", host.logs / f"cold-{i}.log", CASE_TIMEOUT_S, model=model, store=str(store),
                      prompts=PROMPTS, expect_objects=OBJECTS) for i, store in enumerate(stores)]
    return Stored(stores[0], *runs)


def test_the_model_notices_one_wrong_block(run, model, tmp_path):
    """Else none of the comparisons here would mean anything."""
    right, wrong = run("cases:zeroed_block", model=model, root=str(tmp_path))
    changed = max(abs(a[t] - b[t]) for a, b in zip(right.logprobs, wrong.logprobs) for t in a.keys() & b.keys())
    assert changed > 0.05


def test_cold_runs_hit_nothing(stored):
    assert [reply.hit for reply, _ in stored.cold + stored.again] == [0] * (2 * len(LENGTHS))


def test_warm_in_a_new_process(stored, model, tmp_path):
    """A process that shares nothing with the first one but the store, and has no variable set that vLLM can do without.

    Prompts of k·chunk − 1, k·chunk and k·chunk + 1 tokens are among them.
    """
    arguments = tmp_path / "arguments.json"
    arguments.write_text(json.dumps({"model": model, "store": str(stored.store), "prompts": PROMPTS}))
    answer = tmp_path / "answer.pickle"
    program = ("import json, pickle, sys, cases\n"
               "found = cases.ask_each(**json.load(open(sys.argv[1])))\n"
               "pickle.dump(found, open(sys.argv[2], 'wb'))\n"
               "import os; os._exit(0)\n")
    full = engine_env()
    needed = ("VLLM_TARGET_DEVICE", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS",
              "LD_PRELOAD", "KMP_BLOCKTIME", "PATH", "HOME")
    env = {name: full[name] for name in needed if name in full}
    env |= {"PYTHONPATH": os.pathsep.join([full["PYTHONPATH"], str(HERE)]), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    if NAIVE:
        env["KVERN_TEST_CONNECTOR"] = "naive"
    with (ROOT / "build" / "logs" / "engine-cases" / "new-process.log").open("w") as log:
        subprocess.run([str(PYTHON), "-c", program, str(arguments), str(answer)], env=env, stdout=log, stderr=log,
                       timeout=CASE_TIMEOUT_S, check=True)
    warm = pickle.loads(answer.read_bytes())
    runs = zip(LENGTHS, stored.cold, stored.again, warm, strict=True)
    for tokens, (cold, digests), (again, _), (reply, loaded) in runs:
        assert (tokens - 1) // CHUNK * CHUNK <= reply.hit <= tokens, tokens
        allowed = max(cold.difference(again), OTHER_SHAPE if tokens % CHUNK == 0 or NAIVE else 0.0)
        assert reply.difference(cold) <= allowed, tokens
        assert kept(tokens, loaded) == kept(tokens, digests), f"{tokens}: other bytes in the blocks than were computed"


@kvern_only
@pytest.mark.parametrize("options", [{"model_id": "another"}, {"tenant": "another"}, {"chunk_tokens": 512}],
                         ids=["model_id", "tenant", "chunk_tokens"])
def test_another_identity_hits_nothing(run, stored, model, options):
    """The objects of the first identity lie in the same store."""
    for (reply, _), (cold, _) in zip(run("cases:ask_each", model=model, store=str(stored.store), prompts=PROMPTS[3:6],
                                         options=options), stored.cold[3:6], strict=True):
        assert reply.hit == 0
        assert reply.difference(cold) == 0


def test_bfloat16_bytes(run, store):
    """In bfloat16 other shapes can turn a token; the bytes of the blocks must be the same all the same."""
    model = str(write_model(ROOT / "build" / "models" / "test-bfloat16",
                            dataclasses.replace(PRESETS["test"], dtype="bfloat16")))
    ask = {"model": model, "store": str(store), "prompts": PROMPTS[:4], "settings": {"dtype": "bfloat16"}}
    cold = run("cases:ask_each", **ask, expect_objects=sum(tokens // CHUNK for tokens in LENGTHS[:4]))
    warm = run("cases:ask_each", **ask)
    for tokens, (_, digests), (reply, loaded) in zip(LENGTHS, cold, warm):
        assert reply.hit >= (tokens - 1) // CHUNK * CHUNK
        assert kept(tokens, loaded) == kept(tokens, digests)

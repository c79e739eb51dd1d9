# SPDX-License-Identifier: Apache-2.0
"""A real vLLM in this process for one test case; imported by the children of engine_host.py only."""
from __future__ import annotations

import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import torch
from vllm import LLM, SamplingParams

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from reply import Reply  # noqa: E402
from serving import kvern_transfer, naive_transfer, prompt_ids  # noqa: E402

BLOCK = 128  # tokens; vLLM's on a CPU
CHUNK = 256  # tokens; chunk_tokens of every case that does not say otherwise
VOCABULARY = 1024
GARBAGE = 3.0  # what wiped KV memory holds: a finite number, so that only a wrong answer shows it


def prompt(tokens: int, seed: int) -> list[int]:
    return prompt_ids(tokens, seed, VOCABULARY)


def transfer(store: Path | str, **options) -> dict:
    """The connector under test on a folder or a store's URI; KVERN_TEST_CONNECTOR=naive stands in for it while it
    can't be built."""
    if os.environ.get("KVERN_TEST_CONNECTOR") == "naive":
        return naive_transfer(Path(store))
    uri = store if "://" in str(store) else Path(store)
    return kvern_transfer(uri, **{"chunk_tokens": CHUNK, "staging_mib": 64, "min_free_percent": 0, **options})


class Engine:
    """One LLM. Prefix caching is off, so that every hit comes through the connector."""

    def __init__(self, model: Path | str, kv_transfer: dict | None, **settings):
        settings = {"dtype": "float32", "max_model_len": 9000, "max_num_batched_tokens": CHUNK, "max_num_seqs": 8,
                    "num_gpu_blocks_override": 128, "enable_prefix_caching": False, "disable_log_stats": False,
                    **settings}
        if kv_transfer:
            settings["kv_transfer_config"] = kv_transfer
        self.llm = LLM(model=str(model), enforce_eager=True, **settings)
        self.core = self.llm.llm_engine.engine_core.engine_core
        self.finished_blocks: dict[str, list[int]] = {}
        self._record_blocks()

    # -------------------------------------------------------------------------------------------------- requests

    def params(self, output_tokens: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True, logprobs=10, detokenize=False)

    def ask_all(self, prompts: list[list[int]], output_tokens: int = 8) -> list[Reply]:
        """All at once; the scheduler decides what runs together."""
        outputs = self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], self.params(output_tokens),
                                    use_tqdm=False)
        return [to_reply(output) for output in outputs]

    def ask(self, ids: list[int], output_tokens: int = 8) -> Reply:
        return self.ask_all([ids], output_tokens)[0]

    def compute(self, ids: list[int], adapter: Any = None) -> Reply:
        """The answer without looking into any cache; what it computes is stored all the same."""
        return self.ask_as(ids, adapter=adapter, read_cache=False)

    def ask_as(self, ids: list[int], *, salt: str = "", adapter: Any = None, read_cache: bool = True) -> Reply:
        """In the namespace of a salt, and with a LoRARequest."""
        params, prompt = self.params(8), {"prompt_token_ids": ids}
        params.skip_reading_prefix_cache = not read_cache
        if salt:
            prompt["cache_salt"] = salt
        return to_reply(self.llm.generate([prompt], params, lora_request=adapter, use_tqdm=False)[0])

    def add(self, request_id: str, ids: list[int], output_tokens: int = 8) -> None:
        """Queues a request; `step` runs it."""
        self.llm.llm_engine.add_request(request_id, {"prompt_token_ids": ids}, self.params(output_tokens))

    def step(self) -> dict[str, Reply]:
        """One step of the engine; the requests that ended in it."""
        return {output.request_id: to_reply(output) for output in self.llm.llm_engine.step() if output.finished}

    def run_out(self, timeout_s: float = 60.0) -> dict[str, Reply]:
        """Steps until nothing is left to do."""
        replies, end = {}, time.monotonic() + timeout_s
        while self.llm.llm_engine.has_unfinished_requests():
            assert time.monotonic() < end, "requests are left after a minute: the engine hangs"
            replies |= self.step()
        return replies

    def abort(self, *request_ids: str) -> None:
        self.llm.llm_engine.abort_request(list(request_ids))

    # -------------------------------------------------------------------------------------------------- KV memory

    @property
    def kv_caches(self) -> list[torch.Tensor]:
        """The worker's own tensors, one a layer."""
        return self.core.model_executor.driver_worker.worker.model_runner.kv_caches

    def wipe(self) -> None:
        """Overwrites all KV memory: a load that does nothing can't pass for one. vLLM's own prefix cache forgets it."""
        self.llm.reset_prefix_cache()
        self.core.model_executor.collective_rpc(_wipe_worker)

    def free_blocks(self) -> int:
        return self.core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def _record_blocks(self) -> None:
        """Remembers which blocks a request had when it finished; their content stays until they are used again."""
        connector = self.core.scheduler.connector
        if connector is None:
            return
        original = connector.request_finished_all_groups

        def recording(request, block_ids):
            self.finished_blocks[request.request_id] = list(block_ids[0])
            return original(request, block_ids)

        connector.request_finished_all_groups = recording

    def last_digests(self, blocks: int) -> list[int]:
        """CRC32 of the first blocks of the request that finished last, over all layers."""
        ids = list(self.finished_blocks.values())[-1][:blocks]
        assert len(ids) == blocks
        digests = []
        for block in ids:
            crc = 0
            for cache in self.kv_caches:
                crc = zlib.crc32(cache[block].contiguous().view(torch.uint8).numpy(), crc)
            digests.append(crc)
        return digests

    # ---------------------------------------------------------------------------------------------------- the rest

    def counters(self) -> dict[str, float]:
        """The connector's Prometheus counters, summed over labels other than `reason`, which is put in brackets."""
        from prometheus_client import REGISTRY

        sums: dict[str, float] = {}
        for metric in REGISTRY.collect():
            for sample in metric.samples:
                if sample.name.startswith("kvern_"):
                    reason = sample.labels.get("reason")
                    for name in {sample.name, f"{sample.name}[{reason}]" if reason else sample.name}:
                        sums[name] = sums.get(name, 0.0) + sample.value
        return sums

    def close(self) -> None:
        """Ends the engine as vLLM does; what was stored is on its way to the store before."""
        self.core.shutdown()


def _wipe_worker(worker) -> None:
    """Runs in each worker."""
    for cache in worker.model_runner.kv_caches:
        for part in cache if isinstance(cache, (list, tuple)) else [cache]:
            part.fill_(GARBAGE)


def to_reply(output) -> Reply:
    completion = output.outputs[0]
    logprobs = [{token: entry.logprob for token, entry in position.items()} for position in completion.logprobs or []]
    return Reply(list(completion.token_ids), logprobs, output.num_cached_tokens or 0, completion.finish_reason or "")


def objects(store: Path) -> list[Path]:
    """All KV objects below a store's folder, oldest first."""
    pattern = "*.npy" if os.environ.get("KVERN_TEST_CONNECTOR") == "naive" else "*/??/*.g0.*"
    return sorted(store.glob(pattern), key=lambda path: (path.stat().st_mtime_ns, path.name))


def wait_for_objects(store: Path, count: int, timeout_s: float = 15.0) -> list[Path]:
    """Stores are asynchronous: waits until that many objects are there."""
    end = time.monotonic() + timeout_s
    while len(found := objects(store)) < count and time.monotonic() < end:
        time.sleep(0.02)
    assert len(found) >= count, f"{len(found)} objects in {store} after {timeout_s} s, not {count}"
    return found

# SPDX-License-Identifier: Apache-2.0
"""The connector for vLLM: translates vLLM's calls to the two native engine halves, and decides nothing itself.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "KvernConnector", "kv_connector_module_path": "kvern.vllm",
        "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"store": "file:///mnt/kv"}}'

vLLM makes one connector in the scheduler's process and one in every worker. They share only an opaque byte string per step.
After the start nothing raises into vLLM: whatever goes wrong becomes a miss, is counted and logged once.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.logger import init_logger

from kvern import _core, facts
from kvern.metrics import KvernPromMetrics, KvernStats, Reporter

if TYPE_CHECKING:
    import torch
    from vllm.v1.request import Request

logger = init_logger("vllm.kvern")

SHUTDOWN_WAIT_S = 30.0  # stores under way get this long when the engine stops
HOOK_CHECK_STEPS = 64  # after so many steps the worker's hooks must have been called


@dataclass
class KvernMetadata(KVConnectorMetadata):
    """One step, as the native scheduler half encoded it; empty if there is nothing to do."""

    step: bytes = b""


@dataclass
class KvernHandshake(KVConnectorHandshakeMetadata):
    """What a worker tells the scheduler once: its geometry as JSON, or why it can't be served."""

    geometry: str = ""
    unsupported: str = ""


@dataclass
class KvernWorkerMetadata(KVConnectorWorkerMetadata):
    """Requests whose loads failed because of the store; sent only when there are some."""

    troubled: set[str] = field(default_factory=set)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, KvernWorkerMetadata)
        self.troubled |= other.troubled
        return self


_cpu_reported_by: int | None = None  # the process whose first connector reports the CPU time of its threads


def _claim_cpu_report() -> Callable[[], float] | None:
    global _cpu_reported_by
    if _cpu_reported_by == os.getpid():
        return None
    _cpu_reported_by = os.getpid()
    return _core.thread_cpu_seconds


def guarded(fallback: Callable[[], Any]) -> Callable[[Callable], Callable]:
    """Makes a method of a side safe to call from vLLM: times it, and turns an error into `fallback()`, logged once a method."""

    def decorate(method: Callable) -> Callable:
        @functools.wraps(method)
        def call(self, *args, **kwargs):
            start = time.perf_counter()
            try:
                return method(self, *args, **kwargs)
            except Exception:
                if method.__name__ not in self.complained:
                    self.complained.add(method.__name__)
                    logger.exception("kvern: %s failed; the request is computed instead", method.__name__)
                return fallback()
            finally:
                self.reporter.connector_seconds += time.perf_counter() - start

        return call

    return decorate


class SchedulerSide:
    """The connector in the scheduler's process: vLLM's objects on one side, _core.Scheduler on the other."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, options: str):
        self.vllm_config = vllm_config
        self.complained: set[str] = set()
        self.requests: dict[str, Request] = {}
        self.unsupported = ""
        self.configured = False
        self.core = _core.Scheduler(options)
        self.reporter = Reporter(self.core.counters, _claim_cpu_report())
        try:
            group = facts.served_group(vllm_config, kv_cache_config)
            facts.check_hash(vllm_config)
        except facts.Unsupported as reason:
            self.disable(str(reason))
            return
        _core.chunk_tokens(options, group.block_tokens, group.bytes_per_token)  # before the workers allocate anything
        model_id = _core.option(options, "model_id")
        self.model = f"id:{model_id}" if model_id else _core.weights_digest(facts.model_folder(vllm_config))
        self.core.announce(vllm_config.kv_transfer_config.engine_id)

    def disable(self, reason: str) -> None:
        self.unsupported = reason
        logger.warning("kvern: running without offload: %s", reason)

    def configure(self, workers: dict[tuple[int, int], KvernHandshake]) -> None:
        """Start-up, after all workers have their KV memory. Raises ValueError with one sentence if they can't work together."""
        if self.unsupported:
            return
        for worker in workers.values():
            if worker.unsupported:
                return self.disable(worker.unsupported)
        self.core.configure([worker.geometry for worker in workers.values()])
        self.configured = True

    def open(self) -> bool:
        """Opens the namespace at the first request: only then does vLLM know the start value of its hashes."""
        if self.core.is_open():
            return True
        if self.unsupported:
            return False
        if not self.configured:
            self.disable("vLLM's handshake did not bring the workers' geometry, so nothing can be loaded or stored")
            return False
        seed, stable = facts.hash_seed()
        if not stable:
            logger.warning("kvern: vLLM hashes with a random start value, so nothing will be found after a restart or by "
                           "another engine; set PYTHONHASHSEED to the same number everywhere")
        served_name = self.vllm_config.model_config.served_model_name
        label = served_name[0] if isinstance(served_name, list) else served_name
        self.core.open(self.model, str(label or self.vllm_config.model_config.model), seed)
        logger.info("kvern: namespace %s", self.core.namespace())
        return True

    @staticmethod
    def served(request: Request) -> bool:
        """False for requests with an adapter: vLLM's hash names it, and a file overwritten in place keeps its name."""
        return request.lora_request is None

    @guarded(lambda: None)
    def on_new_request(self, request: Request) -> None:
        if self.served(request) and self.open():
            self.requests[request.request_id] = request
            self.core.add(request.request_id, request.block_hashes)

    @guarded(lambda: (0, False))
    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        if not self.served(request) or not self.open():
            return 0, False
        self.requests[request.request_id] = request
        tokens = self.core.match(request.request_id, request.block_hashes, num_computed_tokens,
                                 bool(getattr(request, "skip_reading_prefix_cache", False)))
        return (None, False) if tokens < 0 else (tokens, tokens > 0)

    # Not guarded: blocks that vLLM believes to be loading must be loaded or reported, so an error here has to stop it.
    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens > 0:
            self.core.allocated(request.request_id, blocks.get_block_ids()[0], num_external_tokens)

    @guarded(KvernMetadata)
    def build_connector_meta(self, output: Any) -> KvernMetadata:
        if not self.core.is_open():
            return KvernMetadata()
        for request_id in output.preempted_req_ids or ():
            self.core.preempted(request_id)
        drafts = output.scheduled_spec_decode_tokens
        for new in output.scheduled_new_reqs:
            self._scheduled(new.req_id, True, new.block_ids, new.num_computed_tokens, output, drafts)
        cached = output.scheduled_cached_reqs
        resumed = cached.resumed_req_ids
        for i, request_id in enumerate(cached.req_ids):
            self._scheduled(request_id, request_id in resumed, cached.new_block_ids[i], cached.num_computed_tokens[i],
                            output, drafts)
        return KvernMetadata(self.core.build_step())

    def _scheduled(self, request_id: str, restarted: bool, blocks: Any, computed: int, output: Any, drafts: Any) -> None:
        request = self.requests.get(request_id)
        if request is not None:
            self.core.scheduled(request_id, request.block_hashes, restarted, blocks[0] if blocks else None, computed,
                                output.num_scheduled_tokens[request_id], len(drafts.get(request_id, ())))

    @guarded(lambda: None)
    def update_connector_output(self, output: Any) -> None:
        if output.invalid_block_ids:
            self.core.bad_blocks(output.invalid_block_ids)
        if isinstance(output.kv_connector_worker_meta, KvernWorkerMetadata):
            for request_id in output.kv_connector_worker_meta.troubled:
                self.core.troubled(request_id)
        for request_id in output.finished_recving or ():
            self.core.loaded(request_id)

    @guarded(lambda: None)
    def request_finished(self, request: Request) -> None:
        if self.requests.pop(request.request_id, None) is not None:
            if logger.isEnabledFor(10):
                logger.debug("kvern: %s", self.core.explain(request.request_id))
            self.core.finish(request.request_id)

    @guarded(lambda: False)
    def reset_cache(self) -> bool:
        self.core.reset()
        return True


class WorkerSide:
    """The connector in a worker: vLLM's KV memory on one side, _core.Worker on the other."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, options: str):
        self.vllm_config, self.kv_cache_config, self.options = vllm_config, kv_cache_config, options
        self.complained: set[str] = set()
        self.core: _core.Worker | None = None
        self.reporter = Reporter(lambda: self.core.counters() if self.core else {}, _claim_cpu_report())
        self.unsupported = "vLLM has not registered any KV memory"
        self.identity = ""
        self.bad_blocks: set[int] = set()
        self.troubled: set[str] = set()
        self.steps = self.saves = self.polls = 0

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Start-up. Raises ValueError with one sentence for options that can't work; a model that can't be served is told
        to the scheduler by the handshake."""
        try:
            self._register(kv_caches)
            self.unsupported = ""
        except facts.Unsupported as reason:
            self.unsupported = str(reason)

    def _register(self, kv_caches: dict[str, torch.Tensor]) -> None:
        group = facts.served_group(self.vllm_config, self.kv_cache_config)
        tensors = [kv_caches[name] for _, name in group.layers]
        first = tensors[0]
        for (_, name), tensor in zip(group.layers, tensors, strict=True):
            if tensor.device.type != "cpu":
                raise facts.Unsupported(f"KV memory is on {tensor.device}; host memory is served so far")
            if tensor.shape != first.shape or tensor.stride() != first.stride() or tensor.dtype != first.dtype:
                raise facts.Unsupported(f"KV memory of layer {name} is shaped unlike that of {group.layers[0][1]}")
        if not first[0].is_contiguous():
            raise facts.Unsupported("a block of one layer is not one piece of memory")
        if first.shape[0] != self.kv_cache_config.num_blocks:
            raise facts.Unsupported(f"KV memory has {first.shape[0]} rows for {self.kv_cache_config.num_blocks} blocks")
        chunk_tokens = _core.chunk_tokens(self.options, group.block_tokens, group.bytes_per_token)
        self.identity = facts.identity_json(self.vllm_config, self.kv_cache_config, group, chunk_tokens, first)
        item_bytes = first.element_size()
        layers = [(name, tensor.data_ptr(), tensor.stride(0) * item_bytes)
                  for (_, name), tensor in zip(group.layers, tensors, strict=True)]
        self.core = _core.Worker(self.options, layers, first.shape[0], first[0].numel() * item_bytes, group.block_tokens,
                                 chunk_tokens, facts.shard_of(self.vllm_config, group),
                                 facts.ranks_on_host(self.vllm_config))
        self.kept = tensors  # the native half holds addresses only
        logger.info("kvern: chunks of %d tokens (%.1f MiB a rank); store %s", chunk_tokens,
                    len(layers) * first[0].numel() * item_bytes * (chunk_tokens // group.block_tokens) / 2**20,
                    self.core.describe_store())

    def handshake(self) -> KvernHandshake:
        if self.core is None or self.unsupported:
            return KvernHandshake(unsupported=self.unsupported)
        rank = f"pp {_rank('pp')}, tp {_rank('tp')}"
        engine_id = self.vllm_config.kv_transfer_config.engine_id
        return KvernHandshake(geometry=self.core.geometry(rank, self.identity, engine_id))

    @guarded(lambda: None)
    def begin_step(self, metadata: Any) -> None:
        if self.core and isinstance(metadata, KvernMetadata) and metadata.step:
            self.core.begin_step(metadata.step)

    @guarded(lambda: None)
    def wait_for_save(self) -> None:
        self.saves += 1
        if self.core:
            self.core.save()

    @guarded(lambda: (None, None))
    def get_finished(self) -> tuple[None, set[str] | None]:
        self.polls += 1
        finished = self.core.take_finished() if self.core else None
        if finished is None:
            return None, None
        requests, bad_blocks, troubled = finished
        self.bad_blocks.update(bad_blocks)
        self.troubled.update(troubled)
        return None, set(requests)

    def check_hooks(self) -> None:
        """Once, after some steps: a runner that never calls us would look like a cache that never hits."""
        self.steps += 1
        if self.steps == HOOK_CHECK_STEPS and not (self.saves and self.polls):
            logger.warning("kvern: this model runner calls %s, so nothing is %s",
                           "neither wait_for_save nor get_finished" if not self.saves and not self.polls else
                           "wait_for_save never" if not self.saves else "get_finished never",
                           "stored" if not self.saves else "loaded")

    def shutdown(self) -> None:
        if self.core:
            self.core.shutdown(SHUTDOWN_WAIT_S)
        self.core = None


def _rank(kind: str) -> int:
    from vllm.distributed import parallel_state

    group = parallel_state.get_tp_group() if kind == "tp" else parallel_state.get_pp_group()
    return group.rank_in_group


def _taken(values: set) -> set:
    taken = set(values)
    values.clear()
    return taken


class KvernConnector(KVConnectorBase_V1, SupportsHMA):
    """What vLLM sees. One role an instance; the calls of the other role never come."""

    if hasattr(base, "CacheHitSource"):  # vLLM's metrics tell hits apart by tier
        _cache_hit_source = base.CacheHitSource.DISK

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any):
        super().__init__(vllm_config, role, kv_cache_config)
        config = vllm_config.kv_transfer_config
        options = json.dumps(config.kv_connector_extra_config)
        _core.check_options(options)
        if config.kv_load_failure_policy != "recompute" and not _core.option(options, "allow_fail_policy"):
            raise ValueError(
                f"kv_load_failure_policy: '{config.kv_load_failure_policy}' turns every failed load into a failed request; "
                "set it to 'recompute' in kv-transfer-config, or option allow_fail_policy to true")
        self.scheduler: SchedulerSide | None = None
        self.worker: WorkerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            self.scheduler = SchedulerSide(vllm_config, kv_cache_config, options)
        else:
            self.worker = WorkerSide(vllm_config, kv_cache_config, options)

    # ---------------------------------------------------------------------------------------------- both roles

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # best effort: a request that is preempted meanwhile owes nobody anything

    def get_kv_connector_stats(self) -> KvernStats | None:
        side = self.scheduler or self.worker
        return side.reporter.report() if side else None

    def shutdown(self) -> None:
        if self.worker:
            self.worker.shutdown()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KvernStats:
        return KvernStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: list[str],
                           per_engine_labelvalues: dict[int, list[object]]) -> KvernPromMetrics:
        return KvernPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return False  # no hook of an attention layer is used

    # ----------------------------------------------------------------------------------------------- scheduler

    def on_new_request(self, request: Request) -> None:
        self.scheduler.on_new_request(request)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self.scheduler.get_num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        self.scheduler.update_state_after_alloc(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KvernMetadata:
        return self.scheduler.build_connector_meta(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        self.scheduler.update_connector_output(connector_output)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        self.scheduler.request_finished(request)
        return False, None

    def request_finished_all_groups(self, request: Request,
                                    block_ids: tuple[list[int], ...]) -> tuple[bool, dict[str, Any] | None]:
        self.scheduler.request_finished(request)
        return False, None

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        self.set_xfer_handshake_metadata_pp_aware({(0, tp): worker for tp, worker in metadata.items()})

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        self.scheduler.configure(metadata)

    def reset_cache(self) -> bool | None:
        return self.scheduler.reset_cache()

    # -------------------------------------------------------------------------------------------------- worker

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self.worker.register_kv_caches(kv_caches)

    def get_handshake_metadata(self) -> KvernHandshake:
        return self.worker.handshake()

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        self.worker.begin_step(kv_connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        # The step was begun already where the runner calls handle_preemptions; beginning it again does nothing.
        self.worker.begin_step(self._get_connector_metadata())
        self.worker.check_hooks()

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # loads are whole before their request is scheduled

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        pass  # chunks are gathered in wait_for_save

    def wait_for_save(self) -> None:
        self.worker.wait_for_save()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return self.worker.get_finished()

    def get_block_ids_with_load_errors(self) -> set[int]:
        return _taken(self.worker.bad_blocks)

    def build_connector_worker_meta(self) -> KvernWorkerMetadata | None:
        return KvernWorkerMetadata(_taken(self.worker.troubled)) if self.worker.troubled else None

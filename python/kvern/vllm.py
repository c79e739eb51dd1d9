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

from kvern import _core, device, facts
from kvern.metrics import KvernPromMetrics, KvernStats, Reporter

if TYPE_CHECKING:
    import torch
    from vllm.v1.request import Request

logger = init_logger("vllm.kvern")

SHUTDOWN_WAIT_S = 30.0  # stores under way get this long when the engine stops
HOOK_CHECK_STEPS = 64  # after so many steps the worker's hooks must have been called


@dataclass
class KvernMetadata(KVConnectorMetadata):
    """One step, as the native scheduler half encoded it; empty if there is nothing to do. computes: it has tokens."""

    step: bytes = b""
    computes: bool = False


@dataclass
class KvernHandshake(KVConnectorHandshakeMetadata):
    """What a worker tells the scheduler once: its geometry as JSON, or why it can't be served."""

    geometry: str = ""
    unsupported: str = ""


@dataclass
class KvernWorkerMetadata(KVConnectorWorkerMetadata):
    """What failed: blocks that were not loaded, and requests whose loads failed because of the store; and whether chunks are on
    their way out of a device. Sent only when there is something to say."""

    bad_blocks: set[int] = field(default_factory=set)
    troubled: set[str] = field(default_factory=set)
    copying: bool = False

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        assert isinstance(other, KvernWorkerMetadata)
        self.bad_blocks |= other.bad_blocks
        self.troubled |= other.troubled
        self.copying |= other.copying
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


@dataclass
class Known:
    """A request that was seen. adapter: see SchedulerSide.adapter_of."""

    request: Request
    adapter: str | None


def _served_groups(vllm_config: Any, kv_cache_config: Any) -> list[facts.Group]:
    groups = facts.served_groups(vllm_config, kv_cache_config)
    if facts.loads_are_whole(groups) and not hasattr(base, "KVConnectorTransferResults"):
        raise facts.Unsupported("this vLLM can't take back a failed load of a model with windows or states")
    return groups


class SchedulerSide:
    """The connector in the scheduler's process: vLLM's objects on one side, _core.Scheduler on the other."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, options: str):
        self.vllm_config = vllm_config
        self.complained: set[str] = set()
        self.requests: dict[str, Known] = {}
        self.unsupported = ""
        self.configured = False
        self.copying = False  # some worker's chunks are on their way out of its device
        self.core = _core.Scheduler(options)
        self.reporter = Reporter(self.core.counters, _claim_cpu_report())
        self.adapters = facts.Adapters(time.time())
        try:
            groups = _served_groups(vllm_config, kv_cache_config)
            facts.check_hash(vllm_config)
        except facts.Unsupported as reason:
            self.disable(str(reason))
            return
        self.hash_block_tokens = facts.hash_block_tokens(kv_cache_config, groups)
        _core.chunk_tokens(options, *facts.chunk_basis(kv_cache_config, groups))  # before the workers allocate anything
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
        self.core.open(self.model, str(label or self.vllm_config.model_config.model), seed, self.hash_block_tokens)
        logger.info("kvern: namespace %s", self.core.namespace())
        return True

    def adapter_of(self, request: Request) -> str | None:
        """The digest of the adapter's weights (vLLM's hash knows only its name and path); "" for none, None if it can't be told
        which weights the engine has."""
        return "" if request.lora_request is None else self.adapters.digest(request.lora_request.lora_path)

    def take(self, request: Request) -> Known | None:
        """The request with what is asked for in each call; None if it is not served."""
        known = self.requests.get(request.request_id)
        if known is None and self.open():
            if len(request.block_hashes) != request.num_tokens // self.hash_block_tokens:
                if "hashes" not in self.complained:
                    self.complained.add("hashes")
                    logger.warning("kvern: a prompt of %d tokens has %d block hashes of %d tokens, so it is not served",
                                   request.num_tokens, len(request.block_hashes), self.hash_block_tokens)
                return None
            known = self.requests[request.request_id] = Known(request, self.adapter_of(request))
            if known.adapter is None:
                self.core.count_adapter_miss()
        return known if known and known.adapter is not None else None

    @guarded(lambda: None)
    def on_new_request(self, request: Request) -> None:
        if (known := self.take(request)) is not None:
            self.core.add(request.request_id, request.block_hashes, request.num_tokens, known.adapter)

    @guarded(lambda: (0, False))
    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        known = self.take(request)
        if known is None:
            return 0, False
        tokens = self.core.match(request.request_id, request.block_hashes, request.num_tokens, known.adapter,
                                 num_computed_tokens, bool(getattr(request, "skip_reading_prefix_cache", False)))
        return (None, False) if tokens < 0 else (tokens, tokens > 0)

    # Not guarded: blocks that vLLM believes to be loading must be loaded or reported, so an error here has to stop it.
    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens > 0:
            self.core.allocated(request.request_id, blocks.get_block_ids(), num_external_tokens)

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
        return KvernMetadata(self.core.build_step(), output.total_num_scheduled_tokens > 0)

    def _scheduled(self, request_id: str, restarted: bool, blocks: Any, computed: int, output: Any, drafts: Any) -> None:
        known = self.requests.get(request_id)
        if known is not None and known.adapter is not None:
            self.core.scheduled(request_id, known.request.block_hashes, known.request.num_tokens, known.adapter, restarted,
                                blocks, computed, output.num_scheduled_tokens[request_id], len(drafts.get(request_id, ())))

    @guarded(lambda: None)
    def update_connector_output(self, output: Any) -> None:
        told = output.kv_connector_worker_meta
        self.copying = isinstance(told, KvernWorkerMetadata) and told.copying
        if isinstance(told, KvernWorkerMetadata):
            self.core.bad_blocks(told.bad_blocks)
            for request_id in told.troubled:
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


def runtime_for(place: torch.device) -> Any:
    """What copies between the engine's memory and the host; None for memory that the native half reaches itself."""
    return None if place.type == "cpu" else device.TorchRuntime(place)


@dataclass
class Finished:
    """Loads that ended in a step, and those of them of which not everything was loaded."""

    requests: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


@dataclass
class Failed:
    """What failed and has not been told yet: to vLLM, and to our scheduler half."""

    blocks: set[int] = field(default_factory=set)
    told: KvernWorkerMetadata = field(default_factory=KvernWorkerMetadata)


class WorkerSide:
    """The connector in a worker: vLLM's KV memory on one side, _core.Worker on the other."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, options: str):
        self.vllm_config, self.kv_cache_config, self.options = vllm_config, kv_cache_config, options
        self.complained: set[str] = set()
        self.core: _core.Worker | None = None
        self.reporter = Reporter(lambda: self.core.counters() if self.core else {}, _claim_cpu_report())
        self.unsupported = "vLLM has not registered any KV memory"
        self.whole = False  # loads succeed or fail as a whole
        self.identity = ""
        self.device: device.Copies | None = None
        self.failed = Failed()
        self.steps = self.saves = self.polls = 0
        self.begun: Any = None  # the latest step's metadata
        self.unsaved = False  # wait_for_save is still to come in this step, and will have something to do
        self.saved = False  # it was called in this step

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Start-up. Raises ValueError with one sentence for options that can't work; a model that can't be served is told
        to the scheduler by the handshake."""
        try:
            self._register(kv_caches)
            self.unsupported = ""
        except facts.Unsupported as reason:
            self.unsupported = str(reason)

    def _register(self, kv_caches: dict[str, torch.Tensor]) -> None:
        config = self.kv_cache_config
        groups = _served_groups(self.vllm_config, config)
        self.whole = facts.loads_are_whole(groups)
        tensors = [[kv_caches[name] for _, name in group.layers] for group in groups]
        places = {tensor.device for layers in tensors for tensor in layers}
        if len(places) != 1:
            raise facts.Unsupported(f"KV memory is on several devices: {', '.join(sorted(map(str, places)))}")
        chunk_tokens = _core.chunk_tokens(self.options, *facts.chunk_basis(config, groups))
        self.identity = facts.identity_json(self.vllm_config, config, groups, chunk_tokens, [layers[0] for layers in tensors])
        described, pages = [], []
        for group, layers in zip(groups, tensors, strict=True):
            found = [facts.pages_of(name, tensor, config.num_blocks)
                     for (_, name), tensor in zip(group.layers, layers, strict=True)]
            for (_, name), tensor, page in zip(group.layers, layers, found, strict=True):
                if page.page_bytes != found[0].page_bytes or tensor.stride()[1:] != layers[0].stride()[1:]:
                    raise facts.Unsupported(f"KV memory of layer {name} is shaped unlike that of {group.layers[0][1]}")
            shard, replica, replicas = facts.shard_of(self.vllm_config, group)
            described.append((group.kind, [(name, tensor.data_ptr(), page.stride_bytes) for (_, name), tensor, page
                                           in zip(group.layers, layers, found, strict=True)],
                              found[0].page_bytes, group.block_tokens, chunk_tokens, group.window_tokens, shard, replica, replicas))
            pages.append(found)
        runtime = runtime_for(places.pop())
        self.core = _core.Worker(self.options, described, config.num_blocks, runtime is not None,
                                 facts.ranks_on_host(self.vllm_config))
        self.kept = tensors  # the native half holds addresses only
        if runtime is not None:
            self._take_device(runtime, tensors, pages)
        size_bytes = sum(slices * stride for slices, _, stride in map(self.core.slices, range(len(groups))))
        logger.info("kvern: %schunks of %d tokens (%.1f MiB a rank); store %s",
                    f"{len(groups)} KV cache groups, " if len(groups) > 1 else "", chunk_tokens, size_bytes / 2**20,
                    self.core.describe_store())

    def _take_device(self, runtime: Any, tensors: list[list[torch.Tensor]], pages: list[list[facts.Pages]]) -> None:
        staging = self.core.staging_memory()
        not_pinned = runtime.pin(*staging)
        if not_pinned:
            logger.warning("kvern: copies from and to the device take a detour: %s", not_pinned)
        self.device = device.Copies(runtime, tensors, [[(page.page_bytes, page.stride_bytes) for page in group] for group in pages],
                                    [self.core.slices(group) for group in range(len(tensors))], staging,
                                    self.core.device_copies_max(), self.kv_cache_config.num_blocks)

    def handshake(self) -> KvernHandshake:
        if self.core is None or self.unsupported:
            return KvernHandshake(unsupported=self.unsupported)
        rank = f"pp {_rank('pp')}, tp {_rank('tp')}"
        engine_id = self.vllm_config.kv_transfer_config.engine_id
        return KvernHandshake(geometry=self.core.geometry(rank, self.identity, engine_id))

    @guarded(lambda: None)
    def begin_step(self, metadata: Any) -> None:
        if metadata is self.begun:
            return
        self.begun = metadata
        if not isinstance(metadata, KvernMetadata):
            metadata = KvernMetadata()
        # Chunks of earlier steps that found no room are taken up by the next save; some runners save in empty steps, too.
        saves = metadata.computes or self.saved
        self.saved = False
        self.unsaved = bool(metadata.step) or (saves and self.core is not None and self.core.owes_stores())
        if self.core and metadata.step:
            self.core.begin_step(metadata.step)

    @guarded(lambda: None)
    def wait_for_save(self) -> None:
        self.saves += 1
        self.saved, self.unsaved = True, False
        if self.core:
            self.core.save()
            if self.device and (copies := self.core.take_gathers()):
                self.device.gather(copies)

    @guarded(lambda: Finished())
    def finished_loads(self) -> Finished:
        self.polls += 1
        if not self.core:
            return Finished()
        if self.device:
            self._move_on(self.device)
        loads = self.core.take_finished()
        if loads is None:
            return Finished()
        requests, failed, bad_blocks, troubled = loads
        self.failed.blocks.update(bad_blocks)
        self.failed.told.bad_blocks.update(bad_blocks)
        self.failed.told.troubled.update(troubled)
        return Finished(set(requests), set(failed))

    def _move_on(self, copies: device.Copies) -> None:
        """Tells which copies have ended, and starts the next ones."""
        gathers, scatters = copies.poll()
        if gathers or scatters:
            self.core.copied(gathers, scatters)
        copies.scatter(self.core.take_scatters())

    def blocks_with_errors(self) -> set[int]:
        """For vLLM, where it can go on behind the last good block; else it is told the request (get_transfer_results)."""
        blocks, self.failed.blocks = self.failed.blocks, set()
        return set() if self.core is None or self.whole else blocks

    def tell_scheduler(self) -> KvernWorkerMetadata | None:
        told = self.failed.told
        # Where results are asked for before the step's chunks leave the device, these will be on their way soon.
        told.copying = self.device is not None and (bool(self.device.going_out) or self.unsaved)
        if not told.bad_blocks and not told.troubled and not told.copying:
            return None
        self.failed.told = KvernWorkerMetadata()
        return told

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
            if self.device:
                self.core.copied(*self.device.finish())
            self.core.shutdown(SHUTDOWN_WAIT_S)
        self.core = self.device = None


def _rank(kind: str) -> int:
    from vllm.distributed import parallel_state

    group = parallel_state.get_tp_group() if kind == "tp" else parallel_state.get_pp_group()
    return group.rank_in_group


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

    def has_pending_push_work(self) -> bool:
        # An engine with nothing to do would not ask whether its last chunks have left the device.
        return self.scheduler.copying

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
        # The step was begun already where the runner calls handle_preemptions.
        self.worker.begin_step(self._get_connector_metadata())
        self.worker.check_hooks()

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # loads are whole before their request is scheduled

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        pass  # chunks are gathered in wait_for_save

    def wait_for_save(self) -> None:
        self.worker.wait_for_save()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return None, self.worker.finished_loads().requests or None

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        """Takes the place of get_finished where vLLM has it."""
        ended = self.worker.finished_loads()
        failed = ended.failed if self.worker.whole else set()  # else vLLM keeps what lies before the first bad block
        return base.KVConnectorTransferResults(finished_recving=ended.requests, failed_recving=failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self.worker.blocks_with_errors()

    def build_connector_worker_meta(self) -> KvernWorkerMetadata | None:
        return self.worker.tell_scheduler()

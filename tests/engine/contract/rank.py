# SPDX-License-Identifier: Apache-2.0
"""One worker: KV memory, the connector in its worker role, and a model runner that writes and expects golden bytes.

The runner learns everything from SchedulerOutput, as GPUModelRunner does; the functions that are mirrored are named.
"""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lazy_device import LazyDevice
from golden import SCRIBBLE, Chain, Paint
from settings import BLOCK, WINDOW, Setting, layer_name
from rules import Ledger, Violation, broken, watch_worker
from vllm.distributed import parallel_state
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, MambaSpec, SlidingWindowSpec
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.worker.utils import allocate_kv_cache, copy_kv_cache_blocks_inplace


@dataclass(frozen=True)
class Variant:
    """How a runner goes through a step; every difference that released runners have had."""

    loads_first: bool = False  # start_load_kv before the forward pass (has_sync_kv_loads; always before 0.29)
    save_on_empty: bool = True  # wait_for_save on steps without tokens (not before 0.32)
    preemption_hook: bool = True  # handle_preemptions at the begin of a step
    results_first: bool = False  # get_transfer_results before wait_for_save: finalisation waits for a drafter
    old_results: bool = False  # get_finished instead of get_transfer_results (before 0.29)


@dataclass
class Running:
    """What a runner keeps of a request (CachedRequestState)."""

    chain: Chain
    known: int  # tokens of the sequence that were given or sampled so far
    table: tuple[list[int], ...]
    computed: int
    drafts: list[int]


class Group:
    """KV memory of one group on one rank, as word arrays: attention [blocks, heads, tokens, words], states [blocks, words]."""

    def __init__(self, spec: Any, layers: dict[int, torch.Tensor], tp_rank: int):
        self.kind = ("state" if isinstance(spec, MambaSpec) else
                     "window" if isinstance(spec, SlidingWindowSpec) else "full")
        assert self.kind != "full" or isinstance(spec, FullAttentionSpec)
        self.arrays: dict[int, np.ndarray] = {}
        self.paints: dict[int, Paint] = {}
        for layer, tensor in layers.items():
            words = tensor.view(torch.int64).numpy().view(np.uint64)
            if self.kind == "state":
                words = words[:, 0, 0, :]
                self.paints[layer] = Paint(layer, (1, words.shape[-1]), tp_rank)
            else:
                heads = words.shape[1]
                first = 0 if type(spec).__name__ == "MLAAttentionSpec" else tp_rank * heads
                self.paints[layer] = Paint(layer, (heads, words.shape[-1]), first)
            self.arrays[layer] = words

    def needed(self, computed: int) -> tuple[int, int]:
        """The positions (first, end) that the next token's computation reads."""
        if self.kind == "full":
            return 0, computed
        if self.kind == "window":
            return max(0, computed - (WINDOW - 1)), computed
        return computed - 1, computed

    def write(self, table: list[int], first: int, values: np.ndarray) -> None:
        if self.kind == "state":
            block = table[(first + len(values) - 1) // BLOCK]
            for layer, words in self.arrays.items():
                words[block] = self.paints[layer](values[-1:])[0, 0]
            return
        positions = np.arange(first, first + len(values))
        blocks = np.array(table, dtype=np.int64)[positions // BLOCK]
        for layer, words in self.arrays.items():
            words[blocks, :, positions % BLOCK, :] = self.paints[layer](values)

    def wrong(self, table: list[int], first: int, values: np.ndarray) -> str:
        """What is wrong with the memory of positions from `first` on; empty if nothing is."""
        if self.kind == "state":
            index = first // BLOCK
            if index >= len(table) or table[index] == 0:
                return f"there is no state after {first + 1} tokens"
            for layer, words in self.arrays.items():
                if not np.array_equal(words[table[index]], self.paints[layer](values[-1:])[0, 0]):
                    return f"the state after {first + 1} tokens is wrong in layer {layer}, block {table[index]}"
            return ""
        positions = np.arange(first, first + len(values))
        if len(positions) and positions[-1] // BLOCK >= len(table):
            return f"token {positions[-1]} has no block"
        blocks = np.array(table, dtype=np.int64)[positions // BLOCK]
        if (blocks == 0).any():
            return f"token {positions[blocks == 0][0]} is in the null block"
        for layer, words in self.arrays.items():
            right = (words[blocks, :, positions % BLOCK, :] == self.paints[layer](values)).all(axis=(1, 2))
            if not right.all():
                at = int(np.argmin(right))
                held = describe(words[blocks[at], :, positions[at] % BLOCK, :])
                return f"token {positions[at]} is wrong in layer {layer}, block {blocks[at]} ({self.kind}), which holds {held}"
        return ""

    def copy(self, source: int, target: int) -> None:
        for words in self.arrays.values():
            words[target] = words[source]


def describe(words: np.ndarray) -> str:
    """What wrong words are, as far as they tell."""
    first = int(words.flat[0])
    if not words.any():
        return "zeros"
    if first & 0xFFFFFFFF00000000 == SCRIBBLE:
        return f"the scribble of block {first & 0xFFFFFFFF}: nothing was written"
    return "other data"


class FakeGroup:
    """Stands for a process group of vLLM."""

    def __init__(self, rank: int, size: int):
        self.rank_in_group, self.rank, self.world_size = rank, rank, size


@contextlib.contextmanager
def standing_for(setting: Setting, pp: int, tp: int):
    """vLLM's process groups as the rank sees them."""
    before = parallel_state._TP, parallel_state._PP
    parallel_state._TP, parallel_state._PP = FakeGroup(tp, setting.tp), FakeGroup(pp, setting.pp)
    try:
        yield
    finally:
        parallel_state._TP, parallel_state._PP = before


class Rank:
    """A worker process, in this one."""

    def __init__(self, index: int, setting: Setting, config: Any, memory: KVCacheConfig, ledger: Ledger,
                 variant: Variant, salts: dict[str, str | None], device: LazyDevice | None):
        self.salts, self.device = salts, device
        self.trouble: Violation | None = None  # found while the device's queue ran inside a call of the connector
        self.index, self.setting, self.config, self.ledger, self.variant = index, setting, config, ledger, variant
        self.pp, self.tp = setting.ranks[index]
        self.weights = 0
        self.requests: dict[str, Running] = {}
        self.state_index: dict[str, int] = {}
        self.closed = False
        self.memory = memory
        self.tensors = allocate_kv_cache(memory, torch.device("cpu"), KVCacheLayout[config.cache_config.kv_cache_layout
                                                                                    or "LBHNC"])
        self.groups = [Group(group.kv_cache_spec, {layer: self.tensors[layer_name(layer)] for layer in range(64)
                                                   if layer_name(layer) in group.layer_names}, self.tp)
                       for group in memory.kv_cache_groups]
        # Blocks of different groups with one number are the same bytes; the largest group covers them all.
        widest = max(self.groups, key=lambda group: len(group.arrays))
        self.pages = [tensor_pages(self.tensors[layer_name(layer)], memory.num_blocks) for layer in widest.arrays]
        for block in range(memory.num_blocks):
            self._scribble(block)
        with standing_for(setting, self.pp, self.tp):
            self.connector = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, memory)
            watch_worker(self.connector)
            with self._on_device():
                self.connector.register_kv_caches(self.tensors)
            self.handshake = self.connector.get_handshake_metadata()

    @contextlib.contextmanager
    def _on_device(self):
        """The connector believes that KV memory is on a device."""
        if self.device is None:
            yield
            return
        module = sys.modules[type(self.connector).__module__]
        kept, module.runtime_for = module.runtime_for, lambda _: self.device
        try:
            yield
        finally:
            module.runtime_for = kept

    def _in_order(self, work: Callable[[], None]) -> None:
        """Now, or in its turn on the device."""
        if self.device is None:
            return work()

        def later() -> None:
            try:
                work()
            except Violation as error:
                self.trouble = self.trouble or error

        self.device.run(self.device.main, later)

    def _catch_up(self) -> None:
        if self.device is not None:
            self.device.catch_up()
        if self.trouble:
            raise self.trouble

    # ------------------------------------------------------------------------------------------------ free blocks

    def scribble(self, block: int) -> None:
        self._in_order(lambda: self._scribble(block))

    def check_scribbled(self, block: int) -> None:
        self._in_order(lambda: self._check_scribbled(block))

    def _scribble(self, block: int) -> None:
        for page in self.pages:
            page[block] = np.uint64(SCRIBBLE | block)

    def _check_scribbled(self, block: int) -> None:
        for page in self.pages:
            if not (page[block] == np.uint64(SCRIBBLE | block)).all():
                broken("I5", f"block {block} was written on rank {self.index} while it was free")

    def check_loaded(self, request: Any, table: tuple[list[int], ...], tokens: int) -> None:
        """A load that was reported as whole is in memory."""
        self._catch_up()
        chain = Chain(self.salts[request.request_id], self.weights, list(request.all_token_ids))
        self.check(request.request_id, chain, table, tokens, "loaded")

    def check(self, request_id: str, chain: Chain, table: tuple[list[int], ...], computed: int, how: str) -> None:
        if computed == 0:
            return
        for number, group in enumerate(self.groups):
            first, end = group.needed(computed)
            trouble = group.wrong(table[number], first, chain.array(first, end))
            if trouble:
                broken("wrong answer", f"{request_id}, {how} up to {computed} tokens, rank {self.index}, group {number}: "
                                       f"{trouble}")

    # ----------------------------------------------------------------------------------------------------- a step

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Mirrors GPUModelRunner.execute_model and KVConnectorModelRunnerMixin._get_kv_connector_output."""
        with standing_for(self.setting, self.pp, self.tp):
            return self._execute(output)

    def _execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        connector, variant = self.connector, self.variant
        empty = output.total_num_scheduled_tokens == 0
        if variant.preemption_hook:
            connector.handle_preemptions(output.kv_connector_metadata)
        self._update_states(output)
        connector.bind_connector_metadata(output.kv_connector_metadata)
        loads_first = variant.loads_first or output.has_sync_kv_loads
        if loads_first:
            connector.start_load_kv(None)
        result = self._forward(output)
        if not loads_first:
            connector.start_load_kv(None)
        results_first = variant.results_first and not empty  # there is no drafter on an empty step
        saves = variant.save_on_empty or not empty
        if saves and not results_first:
            connector.wait_for_save()
        result.kv_connector_output = self._results(output)
        if saves and results_first:
            connector.wait_for_save()
        connector.clear_connector_metadata()
        return result

    def _results(self, output: SchedulerOutput) -> KVConnectorOutput:
        connector, result = self.connector, KVConnectorOutput()
        if self.variant.old_results:
            result.finished_sending, result.finished_recving = connector.get_finished(output.finished_req_ids)
        else:
            transfer = connector.get_transfer_results(output.finished_req_ids)
            result.finished_sending, result.finished_recving = transfer.finished_sending, transfer.finished_recving
            result.failed_recving = transfer.failed_recving
        result.invalid_block_ids = connector.get_block_ids_with_load_errors()
        if result.finished_sending:
            broken("I2", f"rank {self.index} reports {result.finished_sending} as sent")
        self.ledger.reported(self.index, set(result.finished_recving or ()), set(result.invalid_block_ids),
                             set(result.failed_recving))
        result.kv_connector_stats = connector.get_kv_connector_stats()
        result.kv_cache_events = connector.get_kv_connector_kv_cache_events()
        result.kv_connector_worker_meta = connector.build_connector_worker_meta()
        return result

    def _update_states(self, output: SchedulerOutput) -> None:
        """Mirrors GPUModelRunner._update_states."""
        for request_id in output.finished_req_ids:
            self.requests.pop(request_id, None)
        gone = {*output.finished_req_ids, *(output.preempted_req_ids or ()), *output.scheduled_cached_reqs.resumed_req_ids}
        for request_id in gone:  # mamba_utils.cleanup_mamba_state_idx
            self.state_index.pop(request_id, None)
        if output.new_block_ids_to_zero or output.kv_cache_block_copies:
            self._catch_up()
        for block in output.new_block_ids_to_zero or ():
            for page in self.pages:
                page[block] = 0
        if output.kv_cache_block_copies:
            copy_kv_cache_blocks_inplace(self.tensors.values(), self.memory.num_blocks, output.kv_cache_block_copies)
        for new in output.scheduled_new_reqs:
            self.requests[new.req_id] = Running(Chain(self.salts[new.req_id], self.weights, new.prompt_token_ids),
                                                len(new.prompt_token_ids), tuple(list(ids) for ids in new.block_ids),
                                                new.num_computed_tokens, [])
            self.state_index.pop(new.req_id, None)
        cached = output.scheduled_cached_reqs
        for i, request_id in enumerate(cached.req_ids):
            running = self.requests[request_id]
            # With drafts in flight the scheduler counts them as accepted; the runner knows how many were.
            running.computed = min(cached.num_computed_tokens[i], running.known - 1)
            new_blocks = cached.new_block_ids[i]
            if request_id in cached.resumed_req_ids:
                running.table = tuple(list(ids) for ids in new_blocks)
            elif new_blocks:
                for table, ids in zip(running.table, new_blocks, strict=True):
                    table.extend(ids)
            if request_id in cached.all_token_ids:
                tokens = list(cached.all_token_ids[request_id])
                running.chain = Chain(self.salts[request_id], self.weights, tokens)
                running.known = len(tokens)

    def _forward(self, output: SchedulerOutput) -> ModelRunnerOutput:
        request_ids = list(output.num_scheduled_tokens)
        sampled = []
        if request_ids:
            self._catch_up()
        for request_id in request_ids:
            running = self.requests[request_id]
            drafts = output.scheduled_spec_decode_tokens.get(request_id, [])
            if drafts and drafts[0] < 0:  # placeholders: the runner knows its drafts itself
                drafts = (running.drafts + drafts)[:len(drafts)]
            sampled.append(self._compute(request_id, running, output.num_scheduled_tokens[request_id], drafts))
        return ModelRunnerOutput(req_ids=request_ids, req_id_to_index={name: i for i, name in enumerate(request_ids)},
                                 sampled_token_ids=sampled)

    def _compute(self, request_id: str, running: Running, tokens: int, drafts: list[int]) -> list[int]:
        """One request's part of the forward pass; returns what is sampled."""
        first, end, chain = running.computed, running.computed + tokens, running.chain
        self._move_states(request_id, running, first, end)
        self.check(request_id, chain, running.table, first, "running")
        values = chain.with_drafts(first, end, drafts) if drafts else chain.array(first, end)
        for group, table in zip(self.groups, running.table, strict=True):
            group.write(table, first, values)
        running.drafts = []
        if end - len(drafts) < running.known:  # a chunk of a prompt: nothing is sampled
            return []
        accepted = 0
        while accepted < len(drafts) and drafts[accepted] == chain.token(running.known + accepted):
            accepted += 1
        sampled = [chain.token(running.known + i) for i in range(accepted + 1)]
        running.known += len(sampled)
        running.drafts = self._draft(chain, running.known)
        return sampled

    def _draft(self, chain: Chain, known: int) -> list[int]:
        """Drafts that are mostly right: the third of some sequences is not."""
        right = [chain.token(known + i) for i in range(self.setting.drafts)]
        wrong_at = (chain.value(known - 1) >> 7) % (2 * self.setting.drafts) if right else 0
        return [token + 1000 * (i == wrong_at) for i, token in enumerate(right)]

    def _move_states(self, request_id: str, running: Running, first: int, end: int) -> None:
        """Mirrors mamba_utils.preprocess_mamba: the running state goes to the block in which this step ends."""
        before = self.state_index.get(request_id, (first - 1) // BLOCK)
        now = (end + BLOCK - 1) // BLOCK - 1
        self.state_index[request_id] = now
        for group, table in zip(self.groups, running.table, strict=True):
            if group.kind == "state" and before != -1 and before != now:
                group.copy(table[before], table[now])

    def take_drafts(self) -> DraftTokenIds:
        drafting = {name: running.drafts for name, running in self.requests.items() if running.drafts}
        return DraftTokenIds(list(drafting), [list(drafts) for drafts in drafting.values()])

    # ------------------------------------------------------------------------------------------------------- the end

    def in_use(self) -> tuple[int, int]:
        """Bytes of staging in use or held back, and stores without an answer: zeros at rest."""
        core = self.connector.worker.core
        return core.in_use() if core else (0, 0)

    def counters(self) -> dict[str, float]:
        core = self.connector.worker.core
        return core.counters() if core else {}

    def complained(self) -> set[str]:
        return self.connector.worker.complained

    def shutdown(self) -> None:
        """Ends the connector; afterwards the memory belongs to others."""
        with standing_for(self.setting, self.pp, self.tp):
            self.connector.shutdown()
        self.closed = True
        self._catch_up()
        for block in range(self.memory.num_blocks):
            self._scribble(block)

    def check_untouched(self) -> None:
        """After shutdown: nothing may arrive any more."""
        try:
            if self.device is not None:
                self.device.finish()
            self._catch_up()
            for block in range(self.memory.num_blocks):
                self._check_scribbled(block)
        except Violation as error:
            raise Violation(f"{error} (after shutdown)") from None


def tensor_pages(tensor: torch.Tensor, blocks: int) -> np.ndarray:
    """All bytes of a layer's blocks as [blocks, words], its padding included."""
    stride = tensor.stride(0) * tensor.element_size()
    storage = torch.empty(0, dtype=torch.int8).set_(tensor.untyped_storage())
    first = tensor.storage_offset() * tensor.element_size()
    return torch.as_strided(storage, (blocks, stride), (stride, 1), first).numpy().view(np.uint64)

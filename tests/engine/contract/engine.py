# SPDX-License-Identifier: Apache-2.0
"""One engine around the connector: vLLM's own Scheduler, block pool, hashing and aggregator, and ranks without a model.

Only what vLLM's EngineCore and its executor do is modelled here; the functions that are mirrored are named.
"""
from __future__ import annotations

import contextlib
import re
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from lazy_device import LazyDevice
from settings import Setting, engine_config, memory_configs
from objects import Known
from rank import Rank, Variant
from rules import Ledger, Violation, broken, watch_scheduler
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash, resolve_kv_cache_block_sizes
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

IDLE_SLEEP_S = 0.001  # EngineCoreProc._process_engine_step sleeps so long after a step in which nothing was computed
STUCK_STEPS = 100  # steps in which nothing moves
PATIENCE_STEPS = 1000  # and so many steps: a machine may stand still for a while
PATIENCE_S = 20.0  # without any progress for so long an engine hangs; far above every deadline of the connector


@contextlib.contextmanager
def released_before_transfer_results():
    """A vLLM that does not know get_transfer_results, as far as a connector can tell."""
    kept = base.KVConnectorTransferResults
    del base.KVConnectorTransferResults
    try:
        yield
    finally:
        base.KVConnectorTransferResults = kept


class Engine:
    """One life of an engine on a store. `module`: where KvernConnector is imported from."""

    def __init__(self, setting: Setting, variant: Variant, store: str, seen: Counter, *, prefix_caching: bool, blocks: int,
                 module: str = "kvern.vllm", options: dict | None = None, tight_staging: bool = False,
                 on_device: bool = False, known: Known | None = None):
        self.setting, self.seen, self.on_device = setting, seen, on_device
        self.known = known or Known(setting)
        options = {"store": store, "chunk_tokens": 16, "staging_mib": 1, "min_free_percent": 0, "model_id": "contract",
                   "gpu_staging_mib": 1, **(options or {})}
        self.config = config = engine_config(setting, prefix_caching, module, options, blocks)
        if tight_staging:  # the smallest that is allowed: two chunks a rank
            config.parallel_config.data_parallel_size_local = 24 // len(setting.ranks)
        rank_memory, self.memory = memory_configs(setting, config)
        self.ledger = Ledger(len(setting.ranks), seen)
        scheduler_block, hash_block = resolve_kv_cache_block_sizes(self.memory, config)
        with released_before_transfer_results() if variant.old_results else contextlib.nullcontext():
            self._make(variant, rank_memory, scheduler_block, hash_block)
        self.aggregator = KVOutputAggregator.from_connector(self.connector, len(self.ranks))
        watch_scheduler(self.connector, self.ledger)
        hash_function = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hash_function)
        self.hasher = get_request_block_hasher(hash_block, hash_function)
        self.weights = 0
        self.free: set[int] = set()  # blocks that hold the scribble
        self.reused: list[tuple[int, bool]] = []  # since the last batch was scheduled
        self.reused_before: dict[int, list[tuple[int, bool]]] = {}  # by batch
        self.batches: deque[SchedulerOutput] = deque()  # scheduled, not executed yet
        self._watch_blocks()
        self.depth = config.max_concurrent_batches
        self.closed = False
        self.before_waiting_for_stores: Callable[[], None] = lambda: None  # a store that hangs would be waited for

    def _make(self, variant: Variant, rank_memory: list[Any], scheduler_block: int, hash_block: int) -> None:
        """The scheduler, the ranks, and the handshake between them. Mirrors EngineCore.__init__."""
        scheduler = self.config.scheduler_config.get_scheduler_cls()
        self.scheduler = scheduler(self.config, self.memory, StructuredOutputManager(self.config), scheduler_block, hash_block)
        self.connector = self.scheduler.connector
        self.salts: dict[str, str | None] = {}
        self.ranks = [Rank(i, self.setting, self.config, memory, self.ledger, variant, self.salts,
                           LazyDevice(i) if self.on_device else None) for i, memory in enumerate(rank_memory)]
        self.connector.set_xfer_handshake_metadata_pp_aware({(rank.pp, rank.tp): rank.handshake for rank in self.ranks})

    # ---------------------------------------------------------------------------------------------------- requests

    def add(self, request_id: str, tokens: list[int], output_tokens: int, *, salt: str | None = None,
            skip_reading: bool = False, resumable: bool = False, abort_at_once: bool = False) -> None:
        """Mirrors EngineCore.add_request. Again with the same id: the next piece of a streaming session."""
        params = SamplingParams(max_tokens=output_tokens, ignore_eos=True, skip_reading_prefix_cache=skip_reading or None)
        request = Request(request_id, list(tokens), params, None, cache_salt=salt, block_hasher=self.hasher,
                          resumable=resumable, abort_immediately=abort_at_once)
        self.salts.setdefault(request_id, salt)
        self._guard(self.scheduler.add_request, request)
        if abort_at_once:
            self.abort(request_id)

    def abort(self, request_id: str) -> None:
        request = self.scheduler.requests.get(request_id)
        if request is not None and not request.is_finished():
            self.seen[f"abort {self.phase(request)}"] += 1
        self._guard(self.scheduler.finish_requests, [request_id], RequestStatus.FINISHED_ABORTED)

    def phase(self, request: Request) -> str:
        """Where a request is, in the words of the contract."""
        if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
            return "loaded" if request.request_id in self.scheduler.finished_recving_kv_req_ids else "loading"
        if request.status == RequestStatus.PREEMPTED:
            return "preempted"
        return {RequestStatus.RUNNING: "running", RequestStatus.WAITING: "waiting"}.get(request.status, "streaming")

    def unfinished(self) -> list[Request]:
        return [request for request in self.scheduler.requests.values() if not request.is_finished()]

    def holding(self) -> bool:
        """Whether blocks are held by anything but running requests: loads, those of aborted requests included, requests that
        wait with blocks, and batches in flight."""
        return bool(self.ledger.loads or self.scheduler.kv_holding_waiting or self.batches or self.scheduler.deferred_frees)

    # -------------------------------------------------------------------------------------------------------- steps

    def step(self) -> bool:
        """One turn of EngineCore's loop; False if there was nothing to do. Mirrors step and step_with_batch_queue: with a
        queue, batches are scheduled ahead and executed when the queue is full or nothing more can be scheduled."""
        if not self.scheduler.has_requests() and not self.batches:
            return False
        computed = False
        if self.scheduler.has_requests():
            output = self._guard(self.scheduler.schedule)
            computed = output.total_num_scheduled_tokens > 0
            self._look_at(output)
            self.batches.appendleft(output)
            self.reused_before[id(output)], self.reused = self.reused, []
            if len(self.batches) < self.depth and (computed or self.scheduler.has_requests()):
                if not computed:
                    time.sleep(IDLE_SLEEP_S)
                return True
        self._finish_batch(self.batches.pop())
        if not computed and self.scheduler.has_requests():
            time.sleep(IDLE_SLEEP_S)
        return True

    def _look_at(self, output: SchedulerOutput) -> None:
        self.seen["steps"] += 1
        self.seen["preemptions"] += len(output.preempted_req_ids or ())
        self.seen["resumptions"] += len(output.scheduled_cached_reqs.resumed_req_ids)
        self.seen["draft tokens"] += sum(map(len, output.scheduled_spec_decode_tokens.values()))
        for request_id in output.num_scheduled_tokens:
            request = self.scheduler.requests[request_id]
            self.ledger.ran(request, request.num_computed_tokens)
            self._note(request)
        if self.connector.scheduler.core.is_open():
            self.known.weights.setdefault(self.connector.scheduler.core.namespace(), self.weights)

    def _note(self, request: Request) -> None:
        """What the hashes stand for, before they are gone."""
        self.known.add(self.salts[request.request_id], list(request.all_token_ids), list(request.block_hashes))

    def _finish_batch(self, output: SchedulerOutput) -> None:
        """Executes a batch on all ranks and tells the scheduler. Mirrors MultiprocExecutor and EngineCore.step."""
        self._scribble_reused(self.reused_before.pop(id(output)))
        results = [rank.execute(output) for rank in self.ranks]
        result = self.aggregator.aggregate(results)
        for load in self.ledger.aggregated(result.kv_connector_output):
            request = self.scheduler.requests[load.request_id]
            self.seen["loaded tokens"] += load.tokens - load.local_tokens
            for rank in self.ranks:
                rank.check_loaded(request, load.blocks, load.tokens)
        self._guard(self.scheduler.update_from_output, output, result)
        if self.setting.drafts and not self.setting.asynchronous and output.total_num_scheduled_tokens:
            self._guard(self.scheduler.update_draft_token_ids, self.ranks[0].take_drafts())  # EngineCore.post_step

    def run_until(self, done: Callable[[], bool], what: str) -> None:
        """Steps until something holds or nothing is left to do."""
        end = time.monotonic() + PATIENCE_S
        stuck = steps = 0
        while not done() and self.step():
            steps += 1
            stuck = stuck + 1 if self._stuck() else 0
            if stuck > STUCK_STEPS:
                self.seen["stuck in vLLM"] += 1
                self.abort(next(iter(self.scheduler.kv_holding_waiting)).request_id)
            if time.monotonic() > end and steps > PATIENCE_STEPS:
                broken("I11", f"after {PATIENCE_S:.0f} s and {steps} steps: {what}")

    def _stuck(self) -> bool:
        """vLLM can admit so many loads, or keep so many sessions, that no request gets the blocks to go on, and preempts none.
        Only where the first was loaded well: one without computed tokens is one whose load has failed, which must get out of
        the way."""
        holders = list(self.scheduler.kv_holding_waiting)
        return (bool(holders) and not self.scheduler.running and not self.ledger.loads and not self.batches
                and holders[0].num_computed_tokens > 0)

    def drain(self) -> None:
        """Runs everything out, then waits for the stores, as an engine without requests does: it steps no more."""
        for request in self.unfinished():
            if request.status == RequestStatus.WAITING_FOR_STREAMING_REQ:
                self.abort(request.request_id)
        self.run_until(lambda: not self.scheduler.has_requests() and not self.batches,
                       f"requests are left: {[(r.request_id, str(r.status)) for r in self.scheduler.requests.values()]}")
        self.ledger.nothing_owed()
        self.before_waiting_for_stores()
        end = time.monotonic() + PATIENCE_S
        while any(any(rank.in_use()) for rank in self.ranks):
            if time.monotonic() > end:
                broken("I8", f"staging and stores are left: {[rank.in_use() for rank in self.ranks]}")
            time.sleep(IDLE_SLEEP_S)

    # --------------------------------------------------------------------------------------------------- the caches

    def reset(self, running: bool, connector: bool) -> None:
        """Mirrors EngineCore.reset_prefix_cache. The weights change where nothing computed with the old ones is left."""
        may_fail = self.holding()
        if connector:
            self.ledger.forget()
        try:
            done = self.scheduler.reset_prefix_cache(running, connector)
        except Violation:
            raise
        except RuntimeError as error:
            if not may_fail:
                broken("I8", f"a reset with nothing running or loading failed: {error}")
            return
        if running and not done:
            broken("contract", "reset_cache said no")
        if connector and done:
            self.weights += 1
            self.seen["new weights"] += 1
            for rank in self.ranks:
                rank.weights = self.weights

    def pause(self, abort: bool) -> None:
        """Pause, with a new version of the weights, and resume. Mirrors EngineCoreProc.pause_scheduler: 'abort' ends all
        requests, 'wait' lets those that run end; what is queued meanwhile waits."""
        if abort:
            for request in self.unfinished():
                self.abort(request.request_id)
        self.scheduler.set_pause_state(PauseState.PAUSED_NEW)
        self.run_until(lambda: not self.scheduler.has_requests() and not self.batches, "a pause does not end")
        self.reset(running=True, connector=True)
        self.scheduler.set_pause_state(PauseState.UNPAUSED)

    def _watch_blocks(self) -> None:
        """Blocks are scribbled over the moment they are free or handed out: nobody may read or write them in between.

        With batches in flight that is the moment before the next batch: whoever gets a block can't touch it earlier.
        """
        pool = self.scheduler.kv_cache_manager.block_pool
        get, free = pool.get_new_blocks, pool.free_blocks

        def watched_get(count):
            blocks = get(count)
            self._reuse([(block.block_id, False) for block in blocks])
            return blocks

        def watched_free(ordered):
            ordered = list(ordered)
            free(ordered)
            self._reuse([(block.block_id, True) for block in ordered if block.ref_cnt == 0 and not block.is_null
                         and (block.block_hash is None or not pool.enable_caching)])

        pool.get_new_blocks, pool.free_blocks = watched_get, watched_free
        self.free = {block.block_id for block in pool.blocks if not block.is_null}

    def _reuse(self, blocks: list[tuple[int, bool]]) -> None:
        """Blocks that are free now (True) or handed out (False)."""
        self.reused.extend(blocks)
        if not self.batches:
            self._scribble_reused(self.reused)
            self.reused = []

    def _scribble_reused(self, blocks: list[tuple[int, bool]]) -> None:
        for block, is_free in blocks:
            for rank in self.ranks:
                if block in self.free:
                    rank.check_scribbled(block)
                rank.scribble(block)
            (self.free.add if is_free else self.free.discard)(block)

    def check_free_blocks(self) -> None:
        for block in self.free:
            for rank in self.ranks:
                rank.check_scribbled(block)

    # ------------------------------------------------------------------------------------------------------- the end

    def shutdown(self) -> None:
        """Mirrors EngineCore.shutdown: the workers, then the scheduler."""
        if self.closed:
            return
        self.closed = True
        self._count_faults()
        if not self.batches:
            self.check_free_blocks()
        for rank in self.ranks:
            rank.shutdown()
        self._guard(self.scheduler.shutdown)

    def _count_faults(self) -> None:
        """What was injected, as the stores themselves have counted it."""
        for side in [self.connector.scheduler, *(rank.connector.worker for rank in self.ranks)]:
            if side.core is not None:
                _, _, counts = side.core.describe_store().rpartition("injected so far: ")
                for fault, count in re.findall(r"(\w+) (\d+)", counts):
                    self.seen[f"fault {fault}"] += int(count)

    def abandon(self) -> None:
        """Ends what is left of an engine after a violation."""
        if not self.closed:
            self.closed = True
            for rank in self.ranks:
                rank.connector.shutdown()

    def check_closed(self) -> None:
        for rank in self.ranks:
            rank.check_untouched()
        sides = {f"rank {rank.index}": rank.complained() for rank in self.ranks}
        sides["scheduler"] = self.connector.scheduler.complained
        if any(sides.values()):
            broken("I6", f"errors inside the connector: {({side: names for side, names in sides.items() if names})}")

    @staticmethod
    def _guard(call: Callable, *arguments: Any) -> Any:
        """An error inside vLLM is one that the connector has caused."""
        try:
            return call(*arguments)
        except Violation:
            raise
        except Exception as error:
            import traceback

            at = traceback.extract_tb(error.__traceback__)[-1]
            raise Violation(f"contract: vLLM failed in {at.name} ({at.line}): {type(error).__name__}: {error}") from error

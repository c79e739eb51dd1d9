# SPDX-License-Identifier: Apache-2.0
"""The rules that vLLM's contract imposes (docs/design.md, 4.5), checked call by call on the connectors of one engine."""
from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from settings import BLOCK, CHUNK

CHUNK_BLOCKS = CHUNK // BLOCK

CALL_LIMIT_S = 5.0  # I11: no call into the connector may take longer, whatever the store does (a busy machine included)
SHUTDOWN_LIMIT_S = 40.0
ALLOWED_REPEATS = 2  # I4: failed loads of one request, or of one chunk, after which it may still be tried


class Violation(AssertionError):
    """A rule was broken. The text begins with the rule."""


def broken(rule: str, what: str) -> None:
    raise Violation(f"{rule}: {what}")


@dataclass
class Load:
    """One load that vLLM waits for."""

    request_id: str
    tokens: int  # computed ones at its end, local and loaded
    local_tokens: int
    blocks: tuple[list[int], ...]  # by group, 0 is the null block
    owed_by: set[int]  # ranks that have not reported it
    hashes: list[bytes]  # of its blocks
    bad_blocks: set[int] = field(default_factory=set)
    failed: bool = False

    def ended(self) -> tuple[list[bytes], list[bytes]]:
        """Hashes of blocks that were loaded, and of the first bad chunk where it is known: what comes after it may be whole."""
        if not self.failed:
            return self.hashes, []
        table = self.blocks[0] if len(self.blocks) == 1 else []
        bad = [i // CHUNK_BLOCKS for i, block in enumerate(table[:len(self.hashes)]) if block in self.bad_blocks][:1]
        return ([block for chunk in bad for block in self.hashes[:chunk * CHUNK_BLOCKS]],
                [self.hashes[(chunk + 1) * CHUNK_BLOCKS - 1] for chunk in bad])

    def holds(self) -> set[int]:
        return {block for group in self.blocks for block in group if block}


class Ledger:
    """What is owed, and what was seen, of one engine."""

    def __init__(self, ranks: int, seen: Counter):
        self.ranks, self.seen = ranks, seen
        self.loads: dict[str, Load] = {}
        self.attempts: dict[str, list[int]] = {}  # lengths of failed loads since the request last ran
        self.answers: dict[str, tuple[int | None, int]] = {}
        self.failed_blocks: Counter[bytes] = Counter()  # failed loads of chunks that were not computed or loaded well since

    # ------------------------------------------------------------------------------------------- scheduler's side

    def matched(self, request: Any, local_tokens: int, answer: tuple[int | None, bool]) -> None:
        tokens, is_async = answer
        if tokens is None:
            if is_async:
                broken("contract", f"{request.request_id}: (None, True) is no answer")
            return
        if is_async != (tokens > 0):
            broken("contract", f"{request.request_id}: {answer} is no asynchronous answer")
        if tokens and request.skip_reading_prefix_cache:
            broken("contract", f"{request.request_id}: {tokens} tokens are offered to a request that reads no cache")
        if tokens < 0 or local_tokens + tokens > request.num_tokens:
            broken("contract", f"{request.request_id}: {local_tokens} + {tokens} of {request.num_tokens} tokens")
        if request.request_id in self.loads:
            broken("contract", f"{request.request_id} is asked about while it loads")  # the driver's own check
        self.answers[request.request_id] = (tokens, local_tokens)

    def allocated(self, request: Any, blocks: Any, tokens: int) -> None:
        if tokens == 0:
            return
        offered, local = self.answers[request.request_id]
        if tokens != offered:
            broken("contract", f"{request.request_id}: {offered} tokens were offered and {tokens} are loaded")
        total = local + tokens
        before = self.attempts.get(request.request_id, [])
        if sum(1 for length in before if length <= total) > ALLOWED_REPEATS:
            broken("I4", f"{request.request_id} loads {total} tokens after failed loads of {before}")
        first, end = local // BLOCK, total // BLOCK
        # A lookup under way when a load fails may say once more that the chunk is there.
        again = max((self.failed_blocks[bytes(block)] for block in request.block_hashes[first:end]), default=0)
        if again > ALLOWED_REPEATS:
            broken("I4", f"{request.request_id} loads {total} tokens, of which a chunk has failed {again} times")
        self.loads[request.request_id] = Load(request.request_id, total, local, blocks.get_block_ids(),
                                              set(range(self.ranks)), list(map(bytes, request.block_hashes[:end])))
        self.seen["loads"] += 1

    def aggregated(self, output: Any) -> list[Load]:
        """What the scheduler is told; returns the loads that ended well and must be in memory now."""
        ended = []
        failed = set(output.failed_recving or ())
        for load in self.loads.values():
            load.bad_blocks |= load.holds() & output.invalid_block_ids
        for request_id in output.finished_recving or ():
            load = self.loads.pop(request_id)
            ended.append(load)
            if load.owed_by:
                broken("I1", f"{request_id} is reported although ranks {sorted(load.owed_by)} have not")
            load.failed = request_id in failed or bool(load.bad_blocks)
            if load.failed:
                self.attempts.setdefault(request_id, []).append(load.tokens)
                self.failed_blocks.update(load.ended()[1])
                self.seen["failed loads"] += 1
        for load in ended:  # what another request has loaded well meanwhile is there
            self._is_there(load.ended()[0])
        return [load for load in ended if not load.failed]

    def ran(self, request: Any, end_tokens: int) -> None:
        """A request is computed up to so many tokens: its chunks may be stored afresh."""
        self.attempts.pop(request.request_id, None)
        self._is_there(map(bytes, request.block_hashes[:end_tokens // BLOCK]))

    def _is_there(self, hashes: Iterable[bytes]) -> None:
        for block in hashes:
            self.failed_blocks.pop(block, None)

    def forget(self) -> None:
        """A new epoch: other keys."""
        self.failed_blocks.clear()

    # ------------------------------------------------------------------------------------------------- one rank's

    def reported(self, rank: int, received: set[str], bad_blocks: set[int], failed: set[str]) -> None:
        for request_id in received:
            load = self.loads.get(request_id)
            if load is None or rank not in load.owed_by:
                broken("I2", f"rank {rank} reports {request_id}, which it does not owe")
            load.owed_by.discard(rank)
        if failed - received:
            broken("I3", f"rank {rank} says that {sorted(failed - received)} failed, and not that it ended")
        held = {block for load in self.loads.values() if load.request_id in received or rank in load.owed_by
                for block in load.holds()}
        if bad_blocks - held:
            broken("I3", f"rank {rank} reports blocks {sorted(bad_blocks - held)} of no load that it owes or ends now")

    def nothing_owed(self) -> None:
        if self.loads:
            broken("I1", f"never reported: {[(load.request_id, sorted(load.owed_by)) for load in self.loads.values()]}")


def timed(rule_limit_s: float, name: str, call: Callable) -> Callable:
    """Turns an exception into a violation of I6, and a call that takes too long into one of I11."""

    @functools.wraps(call)
    def checked(*args, **kwargs):
        start = time.monotonic()
        try:
            return call(*args, **kwargs)
        except Exception as error:
            raise Violation(f"I6: {name} raised {type(error).__name__}: {error}") from error
        finally:
            took = time.monotonic() - start
            if took > rule_limit_s:
                broken("I11", f"{name} took {took:.2f} s")

    return checked


SCHEDULER_CALLS = ("on_new_request", "get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta",
                   "update_connector_output", "request_finished_all_groups", "reset_cache", "get_kv_connector_stats",
                   "take_events", "has_pending_push_work", "has_pending_block_frees", "get_loaded_kv_cache_group_ids")
WORKER_CALLS = ("handle_preemptions", "start_load_kv", "wait_for_save", "get_finished", "get_transfer_results",
                "get_block_ids_with_load_errors", "get_kv_connector_stats", "get_kv_connector_kv_cache_events",
                "build_connector_worker_meta")


def watch_scheduler(connector: Any, ledger: Ledger) -> None:
    """Puts the checks around the scheduler's connector."""
    for name in SCHEDULER_CALLS:
        setattr(connector, name, timed(CALL_LIMIT_S, name, getattr(connector, name)))
    connector.shutdown = timed(SHUTDOWN_LIMIT_S, "shutdown", connector.shutdown)
    match, allocated, finished = (connector.get_num_new_matched_tokens, connector.update_state_after_alloc,
                                  connector.request_finished_all_groups)

    def checked_match(request, local_tokens):
        answer = match(request, local_tokens)
        ledger.matched(request, local_tokens, answer)
        return answer

    def checked_allocated(request, blocks, tokens):
        ledger.allocated(request, blocks, tokens)
        return allocated(request, blocks, tokens)

    def checked_finished(request, blocks):
        delay, params = finished(request, blocks)
        if delay:
            broken("I8", f"blocks of {request.request_id} are kept for the connector")
        return delay, params

    connector.get_num_new_matched_tokens = checked_match
    connector.update_state_after_alloc = checked_allocated
    connector.request_finished_all_groups = checked_finished


def watch_worker(connector: Any) -> None:
    for name in WORKER_CALLS:
        if hasattr(connector, name):
            setattr(connector, name, timed(CALL_LIMIT_S, name, getattr(connector, name)))
    connector.shutdown = timed(SHUTDOWN_LIMIT_S, "shutdown", connector.shutdown)

# SPDX-License-Identifier: Apache-2.0
"""Kvern's counters in vLLM's own statistics and on its /metrics page. docs/operations.md says what each one means."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

# name: text of the help line; a name with a label has one counter a value.
COUNTERS = {
    "hit_tokens": "Prompt tokens that were loaded from the store and verified.",
    "asked_tokens": "Prompt tokens of full chunks that the engine did not have itself.",
    "bytes_read": "Bytes read from the store for loads.",
    "loads": "Loads that ended, whole or not.",
    "load_seconds": "Sum over loads of the time from start to report.",
    "failed_loads": "Loads that ended early, by reason.",
    "verified_slices": "Slices of objects whose checksum was right.",
    "mismatched_slices": "Slices of objects whose checksum was wrong; their bytes were not used.",
    "shared_reads": "Chunks that a load took from the read of another one.",
    "peer_reads": "Chunks that a load took from the read of another rank of the host.",
    "fabric_registrations": "Pieces of staging made reachable for others; transfers add nothing to it.",
    "misses": "Requests that were not served further from the store, by reason.",
    "lookups": "Lookups of prompts in the store.",
    "lookup_seconds": "Sum of the time that lookups took.",
    "offered_chunks": "Computed chunks that were handed to the workers for storing.",
    "stored_chunks": "Chunks stored, each rank's part counted.",
    "stored_bytes": "Bytes stored.",
    "existing_chunks": "Chunks that another writer had stored already.",
    "dropped_chunks": "Chunks that were not stored, by reason.",
    "connector_seconds": "Time of the engine's threads inside calls of the connector.",
    "thread_cpu_seconds": "CPU time of Kvern's own threads.",
}
LABELLED = ("failed_loads", "misses", "dropped_chunks")
REPORT_INTERVAL_S = 0.2  # how often times alone are worth a report


class KvernStats(KVConnectorStats):
    """What was counted since the last report: data maps "name" or "name/reason" to a number."""

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """For vLLM's log line: the counts, and the fraction of offered chunks that was stored."""
        shown = {name: round(value, 3) if isinstance(value, float) else value for name, value in self.data.items()}
        stored = self.data.get("stored_chunks", 0) + self.data.get("existing_chunks", 0)
        dropped = sum(value for name, value in self.data.items() if name.startswith("dropped_chunks/"))
        if stored + dropped:
            shown["stored_fraction"] = round(stored / (stored + dropped), 3)
        return shown

    def is_empty(self) -> bool:
        return not self.data


@dataclass
class Reporter:
    """Turns growing counters into reports of what is new. One a connector, used by one thread.

    counters: reads the native counters. The time inside the connector's calls is added by its timer.
    """

    counters: Callable[[], dict[str, int | float]]
    thread_cpu_seconds: Callable[[], float] | None = None  # given to one connector of a process only
    connector_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._told: dict[str, int | float] = {}
        self._told_at = 0.0

    def report(self) -> KvernStats | None:
        """What has changed since the last report, or None. Costs a few microseconds."""
        counts = self.counters()
        news = {name: value - self._told.get(name, 0) for name, value in counts.items() if value != self._told.get(name, 0)}
        now = time.monotonic()
        if not news and now - self._told_at < REPORT_INTERVAL_S:
            return None
        counts["connector_seconds"] = self.connector_seconds
        if self.thread_cpu_seconds:
            counts["thread_cpu_seconds"] = self.thread_cpu_seconds()
        for name in ("connector_seconds", "thread_cpu_seconds"):
            difference = counts.get(name, 0.0) - self._told.get(name, 0.0)
            if difference > 1e-6:
                news[name] = difference
        self._told, self._told_at = counts, now
        return KvernStats(data=news) if news else None


class KvernPromMetrics(KVConnectorPromMetrics):
    """The counters as Prometheus sees them: kvern_<name>_total, with the labels of the engine and, for some, a reason."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        counter_class = metric_types[Counter]
        self._counters = {
            name: counter_class(name=f"kvern_{name}", documentation=text,
                                labelnames=[*labelnames, *(["reason"] if name in LABELLED else [])])
            for name, text in COUNTERS.items()
        }
        # A counter that has not moved is a zero, not a gap: users' first question is whether anything hit.
        for labels in per_engine_labelvalues.values():
            for name, counter in self._counters.items():
                if name not in LABELLED:
                    counter.labels(*labels)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        labels = self.per_engine_labelvalues[engine_idx]
        for key, value in transfer_stats_data.items():
            name, _, reason = key.partition("/")
            if (counter := self._counters.get(name)) is not None:
                counter.labels(*labels, *([reason] if reason else [])).inc(value)

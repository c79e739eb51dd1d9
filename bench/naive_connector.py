# SPDX-License-Identifier: Apache-2.0
"""The floor to beat: what a straightforward KV connector for vLLM looks like, in Python and numpy.

One .npy file a block, named by the block's hash; a thread a load, one block after the other; saves are written inside
wait_for_save, so the engine waits for them. No checksums, no limits, no recovery beyond reporting a block as bad.
For one KV cache group. Options: kv_connector_extra_config {"root": FOLDER}.
"""
from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, SupportsHMA

Block = tuple[int, str]  # block id, hash in hex


@dataclass
class Work(KVConnectorMetadata):
    """What one step asks of the worker."""

    loads: dict[str, list[Block]] = field(default_factory=dict)  # by request id
    saves: list[Block] = field(default_factory=list)


class NaiveConnector(KVConnectorBase_V1, SupportsHMA):
    """Both halves in one class, as vLLM has it; each instance plays one role only."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self.root = Path(self._kv_transfer_config.kv_connector_extra_config["root"])
        self.root.mkdir(parents=True, exist_ok=True)
        self.block_size = vllm_config.cache_config.block_size
        # Scheduler role, by request id.
        self.requests, self.block_ids, self.saved, self.planned = {}, {}, {}, {}
        # Worker role.
        self.layers: list[torch.Tensor] = []
        self.lock = threading.Lock()
        self.loaded: set[str] = set()
        self.bad_blocks: set[int] = set()

    @property
    def requires_kv_delivery(self) -> bool:
        return False

    def file(self, name: str) -> Path:
        return self.root / f"{name}.npy"

    # -------------------------------------------------------------------------------------------------- worker role

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self.layers = list(kv_caches.values())

    def page(self, layer: torch.Tensor, block: int) -> np.ndarray:
        """The bytes of one block of one layer, in place."""
        return layer[block].view(torch.uint8).view(-1).numpy()

    def load(self, request_id: str, blocks: list[Block]) -> None:
        try:
            for block, name in blocks:
                try:
                    for layer, content in zip(self.layers, np.load(self.file(name)), strict=True):
                        self.page(layer, block)[:] = content
                except (OSError, ValueError):
                    self.file(name).unlink(missing_ok=True)
                    with self.lock:
                        self.bad_blocks.add(block)
        finally:
            with self.lock:
                self.loaded.add(request_id)

    def start_load_kv(self, forward_context, **kwargs) -> None:
        for request_id, blocks in self._get_connector_metadata().loads.items():
            threading.Thread(target=self.load, args=(request_id, blocks), daemon=True).start()

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs) -> None:
        pass

    def wait_for_save(self) -> None:
        for block, name in self._get_connector_metadata().saves:
            path = self.file(name)
            if not path.exists():
                unfinished = path.with_suffix(f".{os.getpid()}")
                with unfinished.open("wb") as file:
                    np.save(file, np.stack([self.page(layer, block) for layer in self.layers]))
                unfinished.rename(path)

    def get_finished(self, finished_req_ids):
        with self.lock:
            loaded, self.loaded = self.loaded, set()
        return None, loaded or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        with self.lock:
            bad, self.bad_blocks = self.bad_blocks, set()
        return bad

    # ----------------------------------------------------------------------------------------------- scheduler role

    def on_new_request(self, request) -> None:
        self.requests[request.request_id] = request

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        first = end = num_computed_tokens // self.block_size
        hashes = request.block_hashes
        while end < len(hashes) and self.file(hashes[end].hex()).exists():
            end += 1
        found = (end - first) * self.block_size
        return found, found > 0

    def update_state_after_alloc(self, request, blocks, num_external_tokens) -> None:
        if num_external_tokens:
            ids = blocks.get_block_ids()[0]
            first = len(ids) - num_external_tokens // self.block_size  # what is cached locally comes first
            hashes = request.block_hashes
            self.planned[request.request_id] = [(ids[i], hashes[i].hex()) for i in range(first, len(ids))]

    def build_connector_meta(self, scheduler_output) -> Work:
        work = Work(loads=self.planned)
        self.planned = {}
        for new in scheduler_output.scheduled_new_reqs:
            self.block_ids[new.req_id] = list(new.block_ids[0])
            self.saved[new.req_id] = new.num_computed_tokens // self.block_size
        cached = scheduler_output.scheduled_cached_reqs
        for i, request_id in enumerate(cached.req_ids):
            if request_id in cached.resumed_req_ids:
                self.block_ids[request_id] = []
                self.saved[request_id] = cached.num_computed_tokens[i] // self.block_size
            if cached.new_block_ids[i]:
                self.block_ids[request_id] += cached.new_block_ids[i][0]
        for request_id, count in scheduler_output.num_scheduled_tokens.items():
            request = self.requests[request_id]
            full = min((request.num_computed_tokens + count) // self.block_size, len(request.block_hashes))
            for i in range(self.saved[request_id], full):
                work.saves.append((self.block_ids[request_id][i], request.block_hashes[i].hex()))
            self.saved[request_id] = max(self.saved[request_id], full)
        return work

    def request_finished(self, request, block_ids):
        for table in (self.requests, self.block_ids, self.saved, self.planned):
            table.pop(request.request_id, None)
        return False, None

    def request_finished_all_groups(self, request, block_ids):
        return self.request_finished(request, block_ids[0])

# SPDX-License-Identifier: Apache-2.0
"""What lies in the engine's blocks: once when they were computed, once when the connector reported them loaded."""
from __future__ import annotations

import zlib

import torch
from reply import Place, Watched


class BlockWatch:
    """Listens to the calls between vLLM's scheduler and the connector of an engine in this process."""

    def __init__(self, scheduler, forward_context: dict):
        self.scheduler = scheduler
        groups = scheduler.kv_cache_config.kv_cache_groups
        self.block_tokens = [group.kv_cache_spec.block_size for group in groups]
        self.is_state = [type(group.kv_cache_spec).__name__ == "MambaSpec" for group in groups]
        self.layers = [[forward_context[name].kv_cache for name in group.layer_names] for group in groups]
        self.seen = Watched()
        self.loading: dict[str, list[tuple[Place, int]]] = {}  # places and ids of blocks
        self.spoil: Place | None = None  # the block here is made zero as soon as it is loaded
        connector = scheduler.connector
        for target, name, before in ((connector, "update_state_after_alloc", self.allocated),
                                     (connector, "update_connector_output", self.reported),
                                     (scheduler, "update_from_output", self.stepped)):
            self.listen(target, name, before)
        self.listen_to_matches(connector)

    @staticmethod
    def listen(target, name: str, before) -> None:
        original = getattr(target, name)

        def call(*arguments, **named):
            before(*arguments)
            return original(*arguments, **named)

        setattr(target, name, call)

    def listen_to_matches(self, connector) -> None:
        original = connector.get_num_new_matched_tokens

        def call(request, local_tokens):
            answer = original(request, local_tokens)
            self.seen.matches.append((local_tokens, answer[0]))
            return answer

        connector.get_num_new_matched_tokens = call

    def take(self) -> Watched:
        seen, self.seen = self.seen, Watched()
        return seen

    def content(self, group: int, block: int) -> list[torch.Tensor]:
        """Views of a block, in all layers of its group."""
        parts = [cache if isinstance(cache, (list, tuple)) else [cache] for cache in self.layers[group]]
        return [part[block] for layer in parts for part in layer]

    def digest(self, group: int, block: int) -> int:
        """CRC32 of a block's content, over all layers of its group."""
        crc = 0
        for part in self.content(group, block):
            crc = zlib.crc32(part.contiguous().view(torch.uint8).numpy(), crc)
        return crc

    def allocated(self, request, blocks, external_tokens: int) -> None:
        """Blocks that the connector will fill: those that are not the null block and not local hits."""
        if external_tokens == 0:
            return
        self.seen.loads += 1
        local = request.num_computed_tokens
        self.loading[request.request_id] = [
            ((group, index), block) for group, ids in enumerate(blocks.get_block_ids())
            for index, block in enumerate(ids) if block and index * self.block_tokens[group] >= local]

    def reported(self, output) -> None:
        for request_id in output.finished_recving or ():
            for place, block in self.loading.pop(request_id, ()):
                self.seen.loaded[place] = self.digest(place[0], block)
                if place == self.spoil:
                    for part in self.content(place[0], block):
                        part.zero_()

    def stepped(self, scheduler_output, _) -> None:
        """After the model ran and before anything is freed: the blocks that this step filled."""
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.scheduler.requests.get(request_id)
            if request is None:
                continue
            for group, ids in enumerate(self.scheduler.kv_cache_manager.get_block_ids(request_id)):
                self.take_filled(group, ids, request.num_computed_tokens)

    def take_filled(self, group: int, ids: list[int], computed_tokens: int) -> None:
        size = self.block_tokens[group]
        whole = computed_tokens // size
        if self.is_state[group]:  # only the state at the very end of a step is that of a boundary
            first = whole - 1 if whole and computed_tokens % size == 0 else whole
        else:
            first = 0
        for index in range(first, whole):
            if (group, index) not in self.seen.computed and ids[index]:
                self.seen.computed[group, index] = self.digest(group, ids[index])

# SPDX-License-Identifier: Apache-2.0
"""Copies between KV memory on a device and Kvern's staging in host memory, in the order that streams and events give.

Out: the blocks of a step are collected by one index_select a layer on the engine's stream, so that it comes before whatever
may overwrite them; then a side stream takes them to the host. In: the side stream brings verified bytes to the device and
spreads them by one index_copy a layer, after everything that the engine has started so far, since its blocks may still be
read or written by that. Nothing waits: `poll` asks the events. Belongs to the engine's worker thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

# Ticket, group, block of each page (-1: left out), address of the slices in staging.
Copy = tuple[int, int, list[int], int]


class TorchRuntime:
    """Streams and events of one torch device. What is given to `run` is started on that stream, in order."""

    def __init__(self, device: torch.device):
        self.device = device
        self.side = torch.Stream(device=device)

    def engine(self) -> Any:
        """The stream on which the engine starts its work now."""
        return torch.accelerator.current_stream(self.device)

    def run(self, stream: Any, work: Callable[[], None]) -> None:
        with stream if stream is self.side else nullcontext():
            work()

    def record(self, stream: Any) -> Any:
        """An event that is over when everything started on the stream so far is."""
        return stream.record_event()

    def wait(self, stream: Any, event: Any) -> None:
        """What is started on the stream from now on waits for the event."""
        stream.wait_event(event)

    def over(self, event: Any) -> bool:
        return event.query()

    def finish(self) -> None:
        """Waits for everything on the device."""
        torch.accelerator.synchronize(self.device)

    def free_bytes(self) -> int | None:
        """Free memory of the device; None where it does not tell."""
        module = getattr(torch, self.device.type, None)
        return module.mem_get_info(self.device)[0] if hasattr(module, "mem_get_info") else None

    def pin(self, address: int, size_bytes: int) -> str:
        """Registers host memory, so that copies need no detour. Why not, where it can't be; else ''."""
        if self.device.type != "cuda":
            return f"host memory can't be registered with {self.device.type}"
        status = int(torch.cuda.cudart().cudaHostRegister(address, size_bytes, 0))
        return f"cudaHostRegister failed with status {status}" if status else ""


@dataclass
class _Kind:
    """What the copies of one group have in common. pages: one [blocks, words] view a layer."""

    pages: list[torch.Tensor]
    words: torch.dtype
    slice_words: int  # without the gap
    stride_words: int
    page_words: int


@dataclass
class _Flight:
    event: Any
    tickets: list[int]
    slots: list[int]


class Copies:
    """The copies of one worker.

    layers: per group the KV memory of its layers, [rows, ...] on one device. pages: per group and layer (bytes of a page, bytes
    from page to page). slices: per group (slices, bytes of one, bytes from one to the next) in staging. staging: address and size of
    the host memory. slots: chunks under way at once, each way. Takes 2 * slots chunks of device memory.

    Raises ValueError with one sentence where the device has no room.
    """

    def __init__(self, runtime: Any, layers: list[list[torch.Tensor]], pages: list[list[tuple[int, int]]],
                 slices: list[tuple[int, int, int]], staging: tuple[int, int], slots: int, num_blocks: int):
        self.runtime = runtime
        self.staging_address = staging[0]
        self.host = torch.frombuffer((ctypes.c_uint8 * staging[1]).from_address(staging[0]), dtype=torch.uint8)
        slot_bytes = max(count * stride for count, _, stride in slices)
        device = layers[0][0].device
        self._check_room(2 * slots * slot_bytes)
        self.out_slots = torch.empty((slots, slot_bytes), dtype=torch.uint8, device=device)
        self.in_slots = torch.empty((slots, slot_bytes), dtype=torch.uint8, device=device)
        self.free_out, self.free_in = list(range(slots)), list(range(slots))
        self.kinds = [self._kind(tensors, page, slice_, num_blocks)
                      for tensors, page, slice_ in zip(layers, pages, slices, strict=True)]
        self.going_out: list[_Flight] = []
        self.coming_in: list[_Flight] = []
        self.waiting_in: list[Copy] = []

    def _check_room(self, size_bytes: int) -> None:
        free = self.runtime.free_bytes()
        if free is not None and free < size_bytes:
            raise ValueError(f"option gpu_staging_mib: {size_bytes >> 20} MiB are needed on the device and {free >> 20} are free; "
                             "lower gpu_memory_utilization a little, or gpu_staging_mib")

    @staticmethod
    def _kind(tensors: list[torch.Tensor], places: list[tuple[int, int]], slices: tuple[int, int, int],
              num_blocks: int) -> _Kind:
        _, slice_bytes, stride_bytes = slices
        offsets = [tensor.storage_offset() * tensor.element_size() for tensor in tensors]
        # The widest word that everything is a multiple of: copies by the byte are slow on a device.
        words = next(dtype for dtype in (torch.int64, torch.int32, torch.int16, torch.uint8)
                     if all(number % dtype.itemsize == 0
                            for number in (slice_bytes, *offsets, *(number for place in places for number in place))))
        size = words.itemsize
        pages = []
        for tensor, offset, (page_bytes, page_stride) in zip(tensors, offsets, places, strict=True):
            view = torch.empty(0, dtype=words, device=tensor.device)
            view.set_(tensor.untyped_storage(), offset // size, (num_blocks, page_bytes // size), (page_stride // size, 1))
            pages.append(view)
        return _Kind(pages, words, slice_bytes // size, stride_bytes // size, places[0][0] // size)

    def _slot_view(self, slots: torch.Tensor, kind: _Kind) -> torch.Tensor:
        """[slots, layers, stride] words of the group."""
        count = len(kind.pages)
        return slots.view(kind.words)[:, :count * kind.stride_words].view(slots.shape[0], count, kind.stride_words)

    def _host_slices(self, address: int, kind: _Kind) -> torch.Tensor:
        offset = address - self.staging_address
        size = len(kind.pages) * kind.stride_words * kind.words.itemsize
        return self.host[offset:offset + size]

    # ---------------------------------------------------------------------------------------------------- out

    def gather(self, copies: list[Copy]) -> None:
        """Starts copies of blocks to staging. REQUIRES: no more under way than there are slots."""
        for group in sorted({copy[1] for copy in copies}):
            self._gather(self.kinds[group], [copy for copy in copies if copy[1] == group])

    def _gather(self, kind: _Kind, copies: list[Copy]) -> None:
        runtime, engine = self.runtime, self.runtime.engine()
        device = self.out_slots.device
        slots = [self.free_out.pop() for _ in copies]
        blocks = torch.tensor([block for copy in copies for block in copy[2]], dtype=torch.int64).to(device)
        index = torch.tensor(slots, dtype=torch.int64).to(device)
        view = self._slot_view(self.out_slots, kind)

        def collect() -> None:
            for layer, pages in enumerate(kind.pages):
                chosen = pages.index_select(0, blocks).view(len(copies), kind.slice_words)
                view[:, layer, :kind.slice_words].index_copy_(0, index, chosen)

        def bring() -> None:
            for slot, copy in zip(slots, copies, strict=True):
                host = self._host_slices(copy[3], kind)
                host.copy_(self.out_slots[slot, :host.numel()], non_blocking=True)

        runtime.run(engine, collect)
        runtime.wait(runtime.side, runtime.record(engine))
        runtime.run(runtime.side, bring)
        self.going_out.append(_Flight(runtime.record(runtime.side), [copy[0] for copy in copies], slots))

    # ----------------------------------------------------------------------------------------------------- in

    def scatter(self, copies: list[Copy]) -> None:
        """Starts copies of staging to blocks, as far as there are slots; the rest follows as they become free."""
        self.waiting_in += copies
        while self.waiting_in and self.free_in:
            group = self.waiting_in[0][1]
            batch = []
            while self.waiting_in and self.waiting_in[0][1] == group and len(batch) < len(self.free_in):
                batch.append(self.waiting_in.pop(0))
            self._scatter(self.kinds[group], batch)

    def _scatter(self, kind: _Kind, copies: list[Copy]) -> None:
        runtime = self.runtime
        device = self.in_slots.device
        slots = [self.free_in.pop() for _ in copies]
        pages = [block for copy in copies for block in copy[2]]
        wanted = [i for i, block in enumerate(pages) if block >= 0]
        blocks = torch.tensor([pages[i] for i in wanted], dtype=torch.int64).to(device)
        chosen = torch.tensor(wanted, dtype=torch.int64).to(device)
        index = torch.tensor(slots, dtype=torch.int64).to(device)
        view = self._slot_view(self.in_slots, kind)

        def bring() -> None:
            for slot, copy in zip(slots, copies, strict=True):
                host = self._host_slices(copy[3], kind)
                self.in_slots[slot, :host.numel()].copy_(host, non_blocking=True)

        def spread() -> None:
            for layer, target in enumerate(kind.pages):
                source = view[:, layer, :kind.slice_words].index_select(0, index).view(len(pages), kind.page_words)
                target.index_copy_(0, blocks, source.index_select(0, chosen) if len(wanted) < len(pages) else source)

        runtime.run(runtime.side, bring)
        runtime.wait(runtime.side, runtime.record(runtime.engine()))
        runtime.run(runtime.side, spread)
        self.coming_in.append(_Flight(runtime.record(runtime.side), [copy[0] for copy in copies], slots))

    # --------------------------------------------------------------------------------------------------- ends

    def poll(self) -> tuple[list[int], list[int]]:
        """Tickets of the copies that have ended since the last call: out, in."""
        return self._ended(self.going_out, self.free_out), self._ended(self.coming_in, self.free_in)

    def _ended(self, flights: list[_Flight], free: list[int]) -> list[int]:
        tickets: list[int] = []
        while flights and self.runtime.over(flights[0].event):
            flight = flights.pop(0)
            tickets += flight.tickets
            free += flight.slots
        return tickets

    def finish(self) -> tuple[list[int], list[int]]:
        """Waits for what was started; what was only waiting is never started. As poll()."""
        self.waiting_in.clear()
        if self.going_out or self.coming_in:
            self.runtime.finish()
        return self.poll()

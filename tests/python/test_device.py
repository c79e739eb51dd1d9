# SPDX-License-Identifier: Apache-2.0
"""The order of copies between a device and staging, on a device that does everything as late as it may."""

from __future__ import annotations

import itertools

import pytest
import torch
from fake_runtime import FakeRuntime

from kvern.device import Copies

BLOCKS = 12
STRIDE = 4096
SEEDS = range(120)


class Device:
    """Two groups in KV memory of an odd shape: pages of 24 bytes every 40 (3 layers, 2 pages an object), and of 1,001 bytes every
    1,024 (2 layers, 1 page an object), with staging for a few objects of each."""

    def __init__(self, seed: int, honour_waits: bool = True, slots: int = 3):
        self.runtime = FakeRuntime(seed, honour_waits)
        self.random = self.runtime.random
        self.layers = [[torch.zeros((BLOCKS, size), dtype=torch.uint8) for _ in range(count)] for size, count in ((40, 3), (1024, 2))]
        self.page_bytes, self.pages = (24, 1001), (2, 1)
        views = [[layer[:, :size] for layer in group] for group, size in zip(self.layers, self.page_bytes)]
        self.slices = [(3, 48, STRIDE), (2, 1001, STRIDE)]
        self.staging = torch.zeros(16 * 4 * STRIDE, dtype=torch.uint8)
        self.copies = Copies(self.runtime, views, [[(24, 40)] * 3, [(1001, 1024)] * 2], self.slices,
                             (self.staging.data_ptr(), self.staging.numel()), slots, BLOCKS)
        self.tickets = itertools.count(1)

    def content(self, group: int, layer: int, value: int) -> torch.Tensor:
        """[page bytes] of a block of a group and layer that holds `value`."""
        generator = torch.Generator().manual_seed(value * 100 + group * 10 + layer)
        return torch.randint(0, 256, (self.page_bytes[group],), dtype=torch.uint8, generator=generator)

    def write(self, group: int, block: int, value: int) -> None:
        """The engine's forward pass: on its stream, some time later."""
        def work() -> None:
            for layer, tensor in enumerate(self.layers[group]):
                tensor[block, :self.page_bytes[group]] = self.content(group, layer, value)
        self.runtime.run(self.runtime.engine(), work)

    def holds(self, group: int, block: int, value: int) -> bool:
        return all(torch.equal(tensor[block, :self.page_bytes[group]], self.content(group, layer, value))
                   for layer, tensor in enumerate(self.layers[group]))

    def slots_at(self, place: int) -> int:
        return self.staging.data_ptr() + place * 4 * STRIDE

    def staged(self, place: int, group: int, values: list[int]) -> bool:
        """Whether the object at a place of staging has pages of these values."""
        for layer in range(self.slices[group][0]):
            at = place * 4 * STRIDE + layer * STRIDE
            wanted = torch.cat([self.content(group, layer, value) for value in values])
            if not torch.equal(self.staging[at:at + wanted.numel()], wanted):
                return False
        return True

    def stage(self, place: int, group: int, values: list[int]) -> None:
        for layer in range(self.slices[group][0]):
            at = place * 4 * STRIDE + layer * STRIDE
            bytes_ = torch.cat([self.content(group, layer, value) for value in values])
            self.staging[at:at + bytes_.numel()] = bytes_


def gather_then_overwrite(seed: int, honour_waits: bool) -> bool:
    """Computes blocks, hands them to a gather, lets the engine overwrite them at once; whether staging has what was computed."""
    device = Device(seed, honour_waits)
    group = device.random.randrange(2)
    wanted, copies = [], []
    for place in range(device.random.randrange(1, 4)):
        blocks = device.random.sample(range(BLOCKS), device.pages[group])
        values = [device.random.randrange(1, 1000) for _ in blocks]
        for block, value in zip(blocks, values):
            device.write(group, block, value)
        device.runtime.some_steps()
        copies.append((next(device.tickets), group, blocks, device.slots_at(place)))
        wanted.append((place, values, blocks))
    # A later chunk may have taken a block of an earlier one: what counts is what lies there at the gather.
    latest = {block: value for _, values, blocks in wanted for block, value in zip(blocks, values)}
    device.copies.gather(copies)
    for block in range(BLOCKS):
        device.write(group, block, 5000 + block)
    early = device.copies.poll()[0]
    assert early == [] or all(device.staged(place, group, [latest[block] for block in blocks])
                              for ticket, (place, _, blocks) in zip(early, wanted) if ticket)
    device.runtime.finish()
    assert device.copies.poll()[0] == [copy[0] for copy in copies]
    return all(device.staged(place, group, [latest[block] for block in blocks]) for place, _, blocks in wanted)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gather_sees_its_step_and_nothing_after_it(seed):
    assert gather_then_overwrite(seed, honour_waits=True)


def test_a_device_without_order_would_be_found_by_gathers():
    assert not all(gather_then_overwrite(seed, honour_waits=False) for seed in SEEDS)


def free_then_load(seed: int, honour_waits: bool) -> bool:
    """The engine still reads and writes blocks that a load has got; whether both saw what they must."""
    device = Device(seed, honour_waits)
    group = device.random.randrange(2)
    blocks = device.random.sample(range(BLOCKS), device.pages[group])
    seen: list[bool] = []
    for block in blocks:
        device.write(group, block, block + 1)
        device.runtime.run(device.runtime.engine(), lambda block=block: seen.append(device.holds(group, block, block + 1)))
    device.runtime.some_steps()
    values = [device.random.randrange(1000, 2000) for _ in blocks]
    left_out = device.random.randrange(len(blocks) + 1)
    device.stage(0, group, values)
    before = [[tensor[block].clone() for tensor in device.layers[group]] for block in range(BLOCKS)]
    ticket = next(device.tickets)
    given = [-1 if i == left_out else block for i, block in enumerate(blocks)]
    device.copies.scatter([(ticket, group, given, device.slots_at(0))])
    while not (ended := device.copies.poll()[1]):
        assert device.runtime.step()
    assert ended == [ticket]
    loaded = all(device.holds(group, block, value) for block, value in zip(given, values) if block >= 0)
    device.runtime.finish()
    untouched = all(torch.equal(tensor[block], before[block][layer]) for block in range(BLOCKS) if block not in blocks
                    for layer, tensor in enumerate(device.layers[group]))
    return loaded and untouched and all(seen) and all(
        device.holds(group, block, value) for block, value in zip(given, values) if block >= 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_scatter_comes_after_everything_that_was_started(seed):
    assert free_then_load(seed, honour_waits=True)


def test_a_device_without_order_would_be_found_by_scatters():
    assert not all(free_then_load(seed, honour_waits=False) for seed in SEEDS)


@pytest.mark.parametrize("seed", range(20))
def test_scatters_without_a_slot_wait_for_one_and_keep_their_order(seed):
    device = Device(seed, slots=2)
    copies = []
    for place in range(7):
        device.stage(place, 1, [place + 1])
        copies.append((next(device.tickets), 1, [place], device.slots_at(place)))
    device.copies.scatter(copies)
    ended: list[int] = []
    while len(ended) < 7:
        assert len(device.copies.free_in) + sum(len(flight.slots) for flight in device.copies.coming_in) == 2
        device.runtime.some_steps()
        ended += device.copies.poll()[1]
        device.copies.scatter([])
    assert ended == [copy[0] for copy in copies]
    assert all(device.holds(1, place, place + 1) for place in range(7))


def test_both_groups_in_one_step():
    device = Device(7)
    for group, blocks in ((0, [3, 4]), (1, [5])):
        for block in blocks:
            device.write(group, block, 10 + block)
    device.copies.gather([(1, 1, [5], device.slots_at(1)), (2, 0, [3, 4], device.slots_at(0))])
    device.runtime.finish()
    assert sorted(device.copies.poll()[0]) == [1, 2]
    assert device.staged(0, 0, [13, 14])
    assert device.staged(1, 1, [15])


def test_finish_ends_what_was_started_and_drops_what_waited():
    device = Device(3, slots=1)
    for place in range(2):
        device.stage(place, 1, [place + 1])
    device.copies.scatter([(1, 1, [0], device.slots_at(0)), (2, 1, [1], device.slots_at(1))])
    assert device.copies.finish() == ([], [1])
    assert device.holds(1, 0, 1)
    assert not device.holds(1, 1, 2)


def test_too_little_device_memory_names_the_options():
    runtime = FakeRuntime(0, free=10 << 20)
    memory = torch.zeros((4, 64), dtype=torch.uint8)
    staging = torch.zeros(STRIDE, dtype=torch.uint8)
    with pytest.raises(ValueError, match="option gpu_staging_mib: 32 MiB are needed on the device and 10 are free; lower "
                                         "gpu_memory_utilization a little, or gpu_staging_mib"):
        Copies(runtime, [[memory]], [[(64, 64)]], [(1, 64, STRIDE)], (staging.data_ptr(), STRIDE), 4096, 4)


def test_wide_words_are_used_where_everything_fits_them():
    device = Device(0)
    assert [kind.words for kind in device.copies.kinds] == [torch.int64, torch.uint8]

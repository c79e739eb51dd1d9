# SPDX-License-Identifier: Apache-2.0
"""A device whose streams finish late and out of step: what is started runs when the test lets it, in an order drawn at random
that keeps only what streams and events promise. Memory is host memory."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Event:
    done: bool = False


@dataclass
class Stream:
    queue: deque = field(default_factory=deque)


class FakeRuntime:
    """As kvern.device.TorchRuntime. `honour_waits=False` makes a device on which nobody waits for anybody."""

    def __init__(self, seed: int, honour_waits: bool = True, free: int | None = None):
        self.random = random.Random(seed)
        self.honour_waits = honour_waits
        self.free = free
        self.compute, self.side = Stream(), Stream()
        self.pinned: list[tuple[int, int]] = []

    def engine(self) -> Stream:
        return self.compute

    def run(self, stream: Stream, work: Callable[[], None]) -> None:
        stream.queue.append(work)

    def record(self, stream: Stream) -> Event:
        event = Event()
        stream.queue.append(event)
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        stream.queue.append((event,))

    def over(self, event: Event) -> bool:
        return event.done

    def finish(self) -> None:
        while self.step():
            pass

    def free_bytes(self) -> int | None:
        return self.free

    def pin(self, address: int, size_bytes: int) -> str:
        self.pinned.append((address, size_bytes))
        return ""

    def step(self) -> bool:
        """Runs the next thing of a stream that can go on; False if there is none."""
        ready = [stream for stream in (self.compute, self.side) if stream.queue and self._can_go(stream.queue[0])]
        if not ready:
            return False
        item = self.random.choice(ready).queue.popleft()
        if isinstance(item, Event):
            item.done = True
        elif callable(item):
            item()
        return True

    def some_steps(self, most: int = 6) -> None:
        for _ in range(self.random.randrange(most)):
            self.step()

    def _can_go(self, item: object) -> bool:
        return not (isinstance(item, tuple) and self.honour_waits and not item[0].done)

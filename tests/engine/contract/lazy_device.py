# SPDX-License-Identifier: Apache-2.0
"""A device without hardware: two streams whose work is started in order and runs as late as it may.

The engine's stream runs when the engine waits for it (a forward pass whose tokens are wanted) or when something on the
other stream waits for it; the side stream runs a little each time the connector asks whether a copy is over.
"""
from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable


class Event:
    def __init__(self) -> None:
        self.over = False


class Stream:
    """Work (called), events of its own (then over) and (event,) of others that it waits for."""

    def __init__(self) -> None:
        self.queue: deque = deque()

    def advance(self) -> bool:
        """Runs the next piece; False if there is none, or it waits."""
        if not self.queue:
            return False
        item = self.queue[0]
        if isinstance(item, tuple) and not item[0].over:
            return False
        self.queue.popleft()
        if isinstance(item, Event):
            item.over = True
        elif not isinstance(item, tuple):
            item()
        return True


class LazyDevice:
    """Stands for kvern.device.TorchRuntime."""

    def __init__(self, seed: int):
        self.side, self.main = Stream(), Stream()
        self.random = random.Random(seed)

    def engine(self) -> Stream:
        return self.main

    def run(self, stream: Stream, work: Callable[[], None]) -> None:
        stream.queue.append(work)

    def record(self, stream: Stream) -> Event:
        stream.queue.append(Event())
        return stream.queue[-1]

    def wait(self, stream: Stream, event: Event) -> None:
        stream.queue.append((event,))

    def over(self, event: Event) -> bool:
        for _ in range(self.random.choice((0, 1, 2, 8))):
            if not self.side.advance() and self.random.random() < 0.5:
                self.main.advance()
        return event.over

    def finish(self) -> None:
        while self.side.advance() or self.main.advance():
            pass

    def catch_up(self) -> None:
        """The engine waits for its own work."""
        while self.main.advance() or (self.main.queue and self.side.advance()):
            pass

    def free_bytes(self) -> None:
        return None

    def pin(self, address: int, size_bytes: int) -> str:
        return ""

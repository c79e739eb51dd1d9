# SPDX-License-Identifier: Apache-2.0
"""Many connections at once by one process: what an engine does with a server, without an engine. Asyncio."""
from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

from servers import Endpoint
from wire import Request

PIECE = 256 << 10


class Broken(Exception):
    """The server answered something else, or closed."""


async def answer_of(reader: asyncio.StreamReader, want_bytes: int | None = None) -> tuple[int, int, int]:
    """Status, bytes and CRC32 of the body, which is never held as a whole."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status, length, crc = int(head.split(" ", 2)[1]), 0, 0
    for line in head.split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    left = length
    while left:
        data = await reader.read(min(left, PIECE))
        if not data:
            raise Broken(f"closed {left} bytes before the end")
        crc = zlib.crc32(data, crc)
        left -= len(data)
    return status, length, crc


async def put(endpoint: Endpoint, path: str, data: bytes, ready: asyncio.Event) -> int:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        await ready.wait()
        writer.write(Request(endpoint, "PUT", path, headers={"content-length": str(len(data))}).sign().head())
        view = memoryview(data)
        for at in range(0, len(data), PIECE):
            writer.write(view[at:at + PIECE])
            await writer.drain()
        return (await answer_of(reader))[0]
    finally:
        writer.close()


async def get(endpoint: Endpoint, path: str, ready: asyncio.Event) -> tuple[int, int, int]:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, limit=PIECE)
    try:
        await ready.wait()
        writer.write(Request(endpoint, "GET", path).sign().head())
        return await answer_of(reader)
    finally:
        writer.close()


def all_at_once(count: int, one: Callable[[int, asyncio.Event], object]) -> list:
    """Runs `one(i, ready)` for all, connected before the first asks."""

    async def run() -> list:
        ready = asyncio.Event()
        tasks = [asyncio.create_task(one(i, ready)) for i in range(count)]
        await asyncio.sleep(1.0)
        ready.set()
        return await asyncio.gather(*tasks)

    return asyncio.run(run())

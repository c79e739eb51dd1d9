# SPDX-License-Identifier: Apache-2.0
"""Reads what is in a store by docs/format.md alone, and compares it with golden bytes."""
from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from golden import Chain, Paint
from settings import BLOCK, Setting, group_layers
from rules import broken

HEADER = struct.Struct("<8sIIQII32sI64sIIIIIIIIIQ")  # up to `parent`
SLICE = struct.Struct("<QQII8x")
SLICE_TABLE = 192
CRC_OFFSET = 160


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@dataclass
class Object:
    """One object, as its header describes it."""

    data: bytes
    name_space: str
    block_hash: bytes
    group: int
    first_layer: int
    first_head: int
    pages: int
    header_bytes: int
    slices: list[tuple[int, int, int, int]]  # offset, length, crc, layer

    @classmethod
    def read(cls, path: Path) -> Object | None:
        """None for something that is no whole object of this version: nobody would load it."""
        data = path.read_bytes()
        if len(data) < SLICE_TABLE or data[:8] != b"KVERNOBJ":
            return None
        (_, version, header_bytes, object_bytes, encoding, group, name_space, hash_bytes, block_hash, first_layer, _,
         first_head, _, _, _, count, _, pages, _) = HEADER.unpack_from(data)
        if (version, encoding) != (2, 1) or object_bytes != len(data):
            return None
        if not SLICE_TABLE + count * SLICE.size <= header_bytes <= len(data):
            return None
        slices = [SLICE.unpack_from(data, SLICE_TABLE + i * SLICE.size) for i in range(count)]
        return cls(data, name_space.hex(), block_hash[:hash_bytes], group, first_layer, first_head, pages, header_bytes,
                   slices)

    def header_holds(self) -> bool:
        """Whether a reader would believe what it says of itself."""
        header = bytearray(self.data[:self.header_bytes])
        (given,) = struct.unpack_from("<I", header, CRC_OFFSET)
        struct.pack_into("<I", header, CRC_OFFSET, 0)
        return crc32c(bytes(header)) == given

    def slices_hold(self) -> bool:
        """Whether a reader would believe its bytes."""
        ends = [offset for offset, *_ in self.slices[1:]] + [len(self.data)]
        return all(crc32c(self.data[offset:end]) == crc for (offset, _, crc, _), end in zip(self.slices, ends, strict=True))


def expected_pages(setting: Setting, kind: str, layer: int, first_head: int, words: int, pages: int, chain: Chain,
                   end_tokens: int) -> np.ndarray:
    """The words of the last `pages` blocks before `end_tokens`, of one layer."""
    if kind == "s":
        return Paint(layer, (1, words), first_head)(chain.array(end_tokens - 1, end_tokens)).ravel()
    heads = 1 if kind == "m" else setting.heads_of_rank
    cells = Paint(layer, (heads, words // (pages * BLOCK * heads)), first_head)(
        chain.array(end_tokens - pages * BLOCK, end_tokens))
    return cells.reshape(pages, BLOCK, heads, -1).transpose(0, 2, 1, 3).ravel()


class Known:
    """Which sequence a block hash stands for, and which weights a namespace."""

    def __init__(self, setting: Setting):
        self.setting = setting
        self.hashes: dict[bytes, tuple[str | None, list[int], int]] = {}  # salt, tokens, tokens up to the block's end
        self.weights: dict[str, int] = {}

    def add(self, salt: str | None, tokens: list[int], block_hashes: list[bytes]) -> None:
        for i, block_hash in enumerate(block_hashes):
            self.hashes.setdefault(bytes(block_hash), (salt, tokens, (i + 1) * BLOCK))

    def check(self, path: Path) -> bool:
        """An object that a reader would believe holds golden bytes. False if it can't be judged."""
        read = Object.read(path)
        if read is None or not read.header_holds():
            return True
        if read.block_hash not in self.hashes or read.name_space not in self.weights:
            return False
        salt, tokens, end_tokens = self.hashes[read.block_hash]
        chain = Chain(salt, self.weights[read.name_space], tokens)
        layers = group_layers(self.setting)[read.group]
        for offset, length, _, number in read.slices:
            layer = layers[number]
            found = np.frombuffer(read.data, dtype=np.uint64, count=length // 8, offset=offset)
            wanted = expected_pages(self.setting, self.setting.layers[layer], layer, read.first_head, found.size,
                                    read.pages, chain, end_tokens)
            if not np.array_equal(found, wanted) and read.slices_hold():
                broken("wrong answer", f"{path.name} holds wrong bytes of layer {layer} under right checksums")
        return True

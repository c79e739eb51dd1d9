# SPDX-License-Identifier: Apache-2.0
"""What KV memory must hold: bytes that follow from the tokens before a position, the layer, the head, and nothing else.

A position's value is a chain over all tokens up to it, started by what else the engine's block hash covers (the salt) and
by the version of the weights. So a block that was loaded for another prefix, salt, layer, shard or version of the weights
is told apart, and two computations of one prefix agree to the byte. The model's next token follows from the same value:
the answer of a request is known in advance.
"""
from __future__ import annotations

import numpy as np

MASK = (1 << 64) - 1
MULTIPLIER = 0x9E3779B97F4A7C15
VOCABULARY = 50
SCRIBBLE = 0xDEADBEEF00000000  # with the block's number: what a free block holds


def start_value(salt: str | None, weights: int) -> int:
    value = 0x1234567 + weights * MULTIPLIER
    for byte in (salt or "").encode():
        value = next_value(value, 1000 + byte)
    return value & MASK


def next_value(value: int, token: int) -> int:
    value = ((value ^ (token + 1)) * MULTIPLIER) & MASK
    return value ^ (value >> 29)


def next_token(value: int) -> int:
    """What the model says after a position with this value."""
    return 1 + (value >> 11) % VOCABULARY


class Chain:
    """The values of a sequence of tokens; grows, and can say how the model would go on."""

    def __init__(self, salt: str | None, weights: int, tokens: list[int]):
        self.start = start_value(salt, weights)
        self.tokens = list(tokens)
        self.values: list[int] = []

    def value(self, position: int) -> int:
        """Of the token at `position`; the sequence is continued by the model as far as needed."""
        while len(self.values) <= position:
            before = self.values[-1] if self.values else self.start
            if len(self.values) == len(self.tokens):
                self.tokens.append(next_token(before))
            self.values.append(next_value(before, self.tokens[len(self.values)]))
        return self.values[position]

    def token(self, position: int) -> int:
        if position >= len(self.tokens):
            self.value(position)
        return self.tokens[position]

    def array(self, first: int, end: int) -> np.ndarray:
        if end > first:
            self.value(end - 1)
        return np.array(self.values[first:end], dtype=np.uint64)

    def with_drafts(self, first: int, end: int, drafts: list[int]) -> np.ndarray:
        """Values of positions first..end-1, the last of which are draft tokens, right or wrong."""
        true_end = end - len(drafts)
        values = [self.value(i) for i in range(first, true_end)]
        value = self.value(true_end - 1)
        for draft in drafts:
            value = next_value(value, draft)
            values.append(value)
        return np.array(values, dtype=np.uint64)


class Paint:
    """Expands values to the words of one layer's memory: one word array of `shape` for each value."""

    def __init__(self, layer: int, shape: tuple[int, ...], first_head: int = 0):
        heads, words = shape
        source = np.random.default_rng(layer)
        all_heads = source.integers(0, 1 << 63, size=(64, words), dtype=np.uint64)
        self.mask = all_heads[first_head:first_head + heads]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values[:, None, None] ^ self.mask[None]) * np.uint64(MULTIPLIER)

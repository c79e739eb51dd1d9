# SPDX-License-Identifier: Apache-2.0
"""What comes back from a request, for the children and for the tests."""
from __future__ import annotations

from dataclasses import dataclass, field

Place = tuple[int, int]  # group, index of a block in its request's list


@dataclass
class Reply:
    """What one request got; kept apart from the engine, so that a test can read it without vLLM."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[dict[int, float]] = field(default_factory=list)  # the likeliest tokens of each position
    hit: int = 0  # prompt tokens that did not have to be computed
    finish: str = ""

    def difference(self, other: Reply) -> float:
        """The largest difference of log-probabilities, infinite if the tokens differ."""
        if self.tokens != other.tokens or not self.tokens:
            return float("inf")
        pairs = zip(self.logprobs, other.logprobs, strict=True)
        return max(abs(mine[t] - theirs[t]) for mine, theirs in pairs for t in mine.keys() & theirs.keys())


@dataclass
class Watched:
    """Of all requests since the last `take`: digests of blocks by place, and what the connector was asked.

    The blocks of several requests at once are not told apart.
    """

    computed: dict[Place, int] = field(default_factory=dict)
    loaded: dict[Place, int] = field(default_factory=dict)
    matches: list[tuple[int, int | None]] = field(default_factory=list)  # local tokens, tokens offered
    loads: int = 0

    @property
    def remote(self) -> int:
        """Tokens that the connector offered last."""
        return next((offered for _, offered in reversed(self.matches) if offered is not None), 0)


@dataclass
class Asked:
    """An answer and what happened to the blocks meanwhile."""

    reply: Reply
    watched: Watched


@dataclass
class Hurt:
    """A prompt before, with and after damage to one of its objects."""

    computed: Asked
    hurt: Asked
    healed: Asked
    failed_loads: float


@dataclass
class Session:
    """What an engine said about several prompts, by name."""

    asked: dict[str, Asked] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)

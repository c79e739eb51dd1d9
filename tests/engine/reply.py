# SPDX-License-Identifier: Apache-2.0
"""What comes back from a request, for the children and for the tests."""
from __future__ import annotations

from dataclasses import dataclass, field


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

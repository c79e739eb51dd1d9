# SPDX-License-Identifier: Apache-2.0
"""The kinds of KV cache that are run with a real vLLM: how each is started, and what may be expected of it.

Plain values, for the tests and for the children that hold the engine.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHUNK = 256  # tokens; a multiple of every kind's block
SAME_SHAPES = 5e-5  # log-probabilities of the same float32 sums in another order


@dataclass(frozen=True)
class Kind:
    """model: of tools/models/kinds.py. groups: "full", "window" or "state", in vLLM's order of groups."""

    model: str
    groups: tuple[str, ...]
    dtype: str = "float32"
    settings: dict[str, Any] = field(default_factory=dict)
    local_cache: bool = True  # vLLM's own prefix cache works for it
    tolerance: float = SAME_SHAPES
    in_ci: bool = True
    cpu_flags: tuple[str, ...] = ()  # vLLM's CPU build runs it on processors with one of these only

    @property
    def unserved_by_this_cpu(self) -> str:
        """Why this machine's vLLM can't run it, or an empty string."""
        if not self.cpu_flags or set(self.cpu_flags) & cpu_flags():
            return ""
        return f"vLLM computes this kind only on processors with {' or '.join(self.cpu_flags)}"

    @property
    def has_state(self) -> bool:
        return "state" in self.groups

    def hits(self, prompt_tokens: int, stored_tokens: int) -> range:
        """How many tokens of a prompt may be hit whose first `stored_tokens` have been stored.

        Whole chunks. The last token of a prompt is computed in any case: where a prompt ends with a chunk vLLM steps back
        by one token, which it can't do with a state, so that there a chunk less is hit.
        """
        whole = min(stored_tokens, prompt_tokens - 1 if self.has_state else prompt_tokens) // CHUNK * CHUNK
        return range(whole - 1 if whole == prompt_tokens else whole, whole + 1)


def cpu_flags() -> set[str]:
    """What the kernel says of the first processor."""
    flags = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return set(flags[1].split()) if flags else set()


BFLOAT16 = {"dtype": "bfloat16", "tolerance": 0.005}  # the same shapes add up alike; a rounding step would be 0.015
KINDS = {
    "llama": Kind("llama", ("full",), in_ci=False),
    "llama-kv1": Kind("llama-kv1", ("full",)),
    "llama-h80": Kind("llama-h80", ("full",), in_ci=False),
    "llama-bf16": Kind("llama", ("full",), in_ci=False, **BFLOAT16),
    "llama-fp8": Kind("llama", ("full",), settings={"kv_cache_dtype": "fp8"}, cpu_flags=("avx512f", "amx_tile"),
                      **BFLOAT16),
    "qwen3-moe": Kind("qwen3-moe", ("full",), in_ci=False),
    "mistral-sw": Kind("mistral-sw", ("window",)),
    "gemma2": Kind("gemma2", ("window", "full")),
    "gemma3": Kind("gemma3", ("window",) * 5 + ("full",), in_ci=False),
    "gpt-oss": Kind("gpt-oss", ("window", "full"), in_ci=False),
    # vLLM's rotary operator for CPUs computes this architecture wrongly, in prefill unlike in decode
    "deepseek-v3": Kind("deepseek-v3", ("full",), local_cache=False, settings={
        "num_gpu_blocks_override": 1024, "compilation_config": {"custom_ops": ["all", "-rotary_embedding"]}}),
    "granite-hybrid": Kind("granite-hybrid", ("state", "full"), settings={"enable_prefix_caching": True}),
    "qwen3-next": Kind("qwen3-next", ("state",) * 3 + ("full",), in_ci=False, settings={"enable_prefix_caching": True},
                       **BFLOAT16),
}

# What has no state to go on from: no hash reaches a block of its own.
NOT_SERVED = {
    "granite-hybrid": {"enable_prefix_caching": False},
    "qwen3-next": {"enable_prefix_caching": False, "dtype": "bfloat16"},
    "mamba2": {"enable_prefix_caching": False},
}

# SPDX-License-Identifier: Apache-2.0
"""Kvern keeps the KV cache of LLM prompts on shared storage. `kvern.vllm` is the connector for vLLM."""

from kvern._core import version

__version__ = version()

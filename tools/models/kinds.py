# SPDX-License-Identifier: Apache-2.0
"""The kinds of KV cache that models have, each as a model of a few million parameters with the structure of the real family.

The checkpoint is laid out as transformers lays it out for the architecture, so this needs transformers (it comes with
vLLM) and spends its time importing it.
"""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models import llama
from models.folder import SPECIAL_IDS, random_tensor, tokenizer_files, write_json, write_once

VOCABULARY, POSITIONS = 1024, 16384
COMMON = {"vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": POSITIONS,
          "tie_word_embeddings": False, **SPECIAL_IDS}
WINDOW = {"sliding_window": 256}
ALTERNATING = {**WINDOW, "layer_types": ["sliding_attention", "full_attention"] * 2}
TIED = {"tie_word_embeddings": True, "query_pre_attn_scalar": 64}  # vLLM has Gemma with tied embeddings only
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}


@dataclass(frozen=True)
class Kind:
    """An architecture of transformers, what differs from COMMON, and the dtype that vLLM runs it in on a CPU."""

    model_type: str
    settings: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"


KINDS = {
    # full attention with experts: the cache is that of Llama
    "qwen3-moe": Kind("qwen3_moe", EXPERTS),
    # a sliding window in every layer
    "mistral-sw": Kind("mistral", WINDOW),
    # windows and full attention, in two groups and in six
    "gemma2": Kind("gemma2", {**ALTERNATING, **TIED}),
    "gemma3": Kind("gemma3_text", {**WINDOW, **TIED, "num_hidden_layers": 6,
                                   "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}),
    # the same with attention sinks and experts
    "gpt-oss": Kind("gpt_oss", {
        **ALTERNATING, "max_position_embeddings": 131072, "num_local_experts": 8, "num_experts_per_tok": 2}),
    # latent attention: one small row a token, whatever the number of heads
    "deepseek-v3": Kind("deepseek_v3", {
        "num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 64, "v_head_dim": 64, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "n_shared_experts": 1, "moe_intermediate_size": 128, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "routed_scaling_factor": 1.0, "topk_method": "noaux_tc"}),
    # states beside full attention: Mamba-2, and gated delta nets
    "granite-hybrid": Kind("granitemoehybrid", {
        "layer_types": ["mamba", "attention"] * 2, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 1,
        "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256, "num_local_experts": 0,
        "num_experts_per_tok": 0, "shared_intermediate_size": 512, "position_embedding_type": "nope"}),
    "qwen3-next": Kind("qwen3_next", {
        **EXPERTS, "layer_types": ["linear_attention"] * 3 + ["full_attention"], "shared_expert_intermediate_size": 128,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4}, "bfloat16"),
    # states alone
    "mamba2": Kind("mamba2", {"num_heads": 8, "head_dim": 64, "state_size": 64, "n_groups": 1, "expand": 2,
                              "conv_kernel": 4, "chunk_size": 256}),
}
NAMES = [*llama.VARIANTS, *KINDS]

# How loud a matrix is, by a part of its name; 1 otherwise. Above 1: attention that picks, not one that averages.
GAINS = {"q_proj": 1.5, "k_proj": 1.5, "kv_b_proj": 1.7, "v_proj": 2.0, "lm_head": 2.0}
TIED_EMBEDDING_GAIN, TIED_NORM = 0.3, 7.0  # quiet embeddings, else a model says its last token again; then a loud end


def dtype_of(kind: str) -> str:
    """The dtype a kind is written in, unless told otherwise."""
    return KINDS[kind].dtype if kind in KINDS else llama.VARIANTS[kind].dtype


def fresh_value(name: str, parameter: Any, kind: Kind, seed: int) -> Any | None:
    """The value of a parameter; None where the architecture's own initial value is kept (norms, most biases)."""
    shape, last = tuple(parameter.shape), name.rsplit(".", 1)[-1]
    if last == "A_log":  # a state forgets a token by 0.2 to 2 % a token, and so reaches over several blocks
        return random_tensor(seed, name, shape, 1, 0.5) - 5.0
    if last == "sinks":
        return random_tensor(seed, name, shape, 1, 1.0)
    tied = kind.settings.get("tie_word_embeddings", False)
    if tied and name == "model.norm.weight":
        return TIED_NORM
    if parameter.dim() < 2:
        return None
    if last.endswith("bias"):
        return random_tensor(seed, name, shape, 1, 0.1)
    if "embed" in name:
        return random_tensor(seed, name, shape, shape[-1] if tied else 1, TIED_EMBEDDING_GAIN if tied else 1.0)
    input_first = kind.model_type == "gpt_oss" and parameter.dim() == 3  # its experts are [expert, input, output]
    gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
    return random_tensor(seed, name, shape, shape[-2 if input_first else -1], gain)


def write_checkpoint(folder: Path, kind: Kind, dtype: str, seed: int) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind.model_type, **{**COMMON, **kind.settings})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = fresh_value(name, parameter, kind, seed)
            if value is not None:
                parameter.copy_(torch.as_tensor(value))
    model.to(getattr(torch, dtype)).save_pretrained(folder)


def write_kind(folder: Path, name: str, dtype: str = "", seed: int = 1) -> Path:
    """Writes a model of that kind unless the folder already holds exactly this one; returns the folder."""
    dtype = dtype or dtype_of(name)
    if name in llama.VARIANTS:
        return llama.write_model(folder, dataclasses.replace(llama.VARIANTS[name], dtype=dtype, seed=seed))
    kind = KINDS[name]

    def write(to: Path) -> None:
        write_checkpoint(to, kind, dtype, seed)
        write_json(to, tokenizer_files(VOCABULARY, POSITIONS))

    return write_once(folder, {**dataclasses.asdict(kind), "common": COMMON, "dtype": dtype, "seed": seed}, write)

# SPDX-License-Identifier: Apache-2.0
"""Llama models, the plain kind: every layer with full attention, one KV cache group. Shapes of any size."""
from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

from models.folder import SPECIAL_IDS, random_tensor, tokenizer_files, write_json, write_once


@dataclass(frozen=True)
class ModelSpec:
    """The shape of a model; the defaults make about 34 M parameters and 8 KiB of float32 KV cache a token."""

    hidden: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    intermediate: int = 2048
    vocabulary: int = 4096
    positions: int = 32768
    dtype: str = "float32"
    seed: int = 1

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_dim * (4 if self.dtype == "float32" else 2)

    @property
    def parameters(self) -> int:
        return sum(rows * columns for rows, columns, _ in tensor_shapes(self).values())


TEST = ModelSpec(hidden=256, layers=4, heads=4, intermediate=512, vocabulary=1024)
PRESETS = {"demo": ModelSpec(), "test": TEST}
VARIANTS = {
    "llama": TEST,
    "llama-kv1": dataclasses.replace(TEST, kv_heads=1),
    "llama-h80": dataclasses.replace(TEST, head_dim=80),
}


def tensor_shapes(spec: ModelSpec) -> dict[str, tuple[int, int, float]]:
    """Name -> (rows, columns, gain) of every matrix; columns are the fan-in."""
    query, kv, hidden = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.hidden
    shapes = {"model.embed_tokens": (spec.vocabulary, hidden, math.sqrt(hidden)),
              "lm_head": (spec.vocabulary, hidden, 2.0)}
    for layer in range(spec.layers):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "self_attn.q_proj": (query, hidden, 1.5),  # above 1: attention that picks, not one that averages
            at + "self_attn.k_proj": (kv, hidden, 1.5),
            at + "self_attn.v_proj": (kv, hidden, 2.0),
            at + "self_attn.o_proj": (hidden, query, 1.0),
            at + "mlp.gate_proj": (spec.intermediate, hidden, 1.0),
            at + "mlp.up_proj": (spec.intermediate, hidden, 1.0),
            at + "mlp.down_proj": (hidden, spec.intermediate, 1.0),
        }
    return shapes


def make_tensors(spec: ModelSpec) -> dict:
    """All weights, as torch tensors of the model's dtype."""
    import torch

    dtype = getattr(torch, spec.dtype)
    tensors = {}
    for name, (rows, columns, gain) in tensor_shapes(spec).items():
        tensors[name + ".weight"] = random_tensor(spec.seed, name, (rows, columns), columns, gain).to(dtype)
    norms = [f"model.layers.{layer}.{norm}" for layer in range(spec.layers)
             for norm in ("input_layernorm", "post_attention_layernorm")]
    for name in [*norms, "model.norm"]:
        tensors[name + ".weight"] = torch.ones(spec.hidden, dtype=dtype)
    return tensors


def make_config(spec: ModelSpec) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": spec.dtype,
        "hidden_size": spec.hidden, "intermediate_size": spec.intermediate, "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads, "num_key_value_heads": spec.kv_heads, "head_dim": spec.head_dim,
        "vocab_size": spec.vocabulary, "max_position_embeddings": spec.positions, "rope_theta": 1e6,
        "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
        "mlp_bias": False, **SPECIAL_IDS,
    }


def write_model(folder: Path, spec: ModelSpec) -> Path:
    """Writes the model unless the folder already holds exactly this one; returns the folder."""

    def write(to: Path) -> None:
        from safetensors.torch import save_file

        save_file(make_tensors(spec), to / "model.safetensors", metadata={"format": "pt"})
        write_json(to, {"config.json": make_config(spec), **tokenizer_files(spec.vocabulary, spec.positions)})

    return write_once(folder, dataclasses.asdict(spec), write)

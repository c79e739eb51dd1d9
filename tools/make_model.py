#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small random Llama model with a byte-level tokenizer to a folder; needs no network.

The weights are random but scaled, std = gain / sqrt(fan-in) with a seed per tensor, so that attention really mixes the
tokens: one wrong block of KV cache moves the log-probabilities by tenths. (vLLM's own dummy weights are too small for
that: swapped KV can leave the answer as it is.) One byte of text is one token; ids from 258 on are filler words.

    tools/make_model.py FOLDER [--preset demo|test] [--dtype float32] [--layers N ...]
"""
from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

BOS, EOS, FIRST_FILLER = 256, 257, 258


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


PRESETS = {
    "demo": ModelSpec(),
    "test": ModelSpec(hidden=256, layers=4, heads=4, intermediate=512, vocabulary=1024),
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
        seed = int.from_bytes(hashlib.sha256(f"{spec.seed}/{name}".encode()).digest()[:7], "little")
        values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
        tensors[name + ".weight"] = (values * (gain / math.sqrt(columns))).to(dtype)
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
        "mlp_bias": False, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": EOS,
    }


def byte_alphabet() -> list[str]:
    """The printable stand-in for each byte that the ByteLevel tokenizer uses: itself, or a letter from U+0100 on."""
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters, shifted = [], 0
    for byte in range(256):
        letters.append(chr(byte if byte in plain else 0x100 + shifted))
        shifted += byte not in plain
    return letters


def make_tokenizer(spec: ModelSpec) -> dict:
    vocabulary = {letter: byte for byte, letter in enumerate(byte_alphabet())} | {"<s>": BOS, "</s>": EOS}
    vocabulary |= {f"\u0120word{i}": i for i in range(FIRST_FILLER, spec.vocabulary)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": BOS, "content": "<s>", **plain}, {"id": EOS, "content": "</s>", **plain}],
        "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": []},
    }


def write_model(folder: Path, spec: ModelSpec) -> Path:
    """Writes the model unless the folder already holds exactly this one; returns the folder."""
    from safetensors.torch import save_file

    wanted = json.dumps(dataclasses.asdict(spec), sort_keys=True)
    stamp = folder / "kvern-model.json"  # written last: a folder with it is whole
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    save_file(make_tensors(spec), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
                        "pad_token": "</s>", "model_max_length": spec.positions, "clean_up_tokenization_spaces": False}
    files = {"config.json": make_config(spec), "tokenizer.json": make_tokenizer(spec),
             "tokenizer_config.json": tokenizer_config,
             "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    stamp.write_text(wanted)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--preset", choices=PRESETS, default="demo")
    for field in dataclasses.fields(ModelSpec):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default))
    args = vars(parser.parse_args())
    changes = {f.name: args[f.name] for f in dataclasses.fields(ModelSpec) if args[f.name] is not None}
    spec = dataclasses.replace(PRESETS[args["preset"]], **changes)
    write_model(args["folder"], spec)
    parameters = sum(rows * columns for rows, columns, _ in tensor_shapes(spec).values())
    print(f"{args['folder']}: {parameters / 1e6:.1f} M parameters, {spec.dtype}, "
          f"KV cache {spec.kv_bytes_per_token} B a token ({spec.kv_bytes_per_token * 8192 / 2**20:.0f} MiB for 8K)")


if __name__ == "__main__":
    main()

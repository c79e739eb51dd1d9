# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters for the models here: random weights on the query and value matrices of every layer."""
from __future__ import annotations

import json
from pathlib import Path

from models.folder import random_tensor, write_json

RANK = 8


def adapter_tensors(config: dict, seed: int) -> dict:
    """Name -> float32 tensor, for a model with that config.json. Loud enough to turn tokens."""
    rows = {"q_proj": config["num_attention_heads"] * config["head_dim"],
            "v_proj": config["num_key_value_heads"] * config["head_dim"]}
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for matrix, outputs in rows.items():
            at = f"base_model.model.model.layers.{layer}.self_attn.{matrix}."
            for side, shape in (("lora_A", (RANK, config["hidden_size"])), ("lora_B", (outputs, RANK))):
                name = f"{at}{side}.weight"
                tensors[name] = random_tensor(seed, name, shape, shape[1], 1.0)
    return tensors


def write_adapter(folder: Path, model: Path, seed: int) -> Path:
    """Writes an adapter for a model of ours, over whatever the folder holds; the same seed gives the same weights."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((model / "config.json").read_text())
    save_file(adapter_tensors(config, seed), folder / "adapter_model.safetensors")
    write_json(folder, {"adapter_config.json": {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": RANK, "lora_dropout": 0.0,
        "bias": "none", "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": str(model)}})
    return folder

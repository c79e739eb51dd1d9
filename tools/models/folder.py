# SPDX-License-Identifier: Apache-2.0
"""What all models here share: seeded weights, a byte-level tokenizer, and folders that are written once.

One byte of text is one token; ids from 258 on are filler words.
"""
from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

BOS, EOS, FIRST_FILLER = 256, 257, 258
SPECIAL_IDS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": EOS}


def random_tensor(seed: int, name: str, shape: tuple[int, ...], fan_in: int, gain: float) -> Any:
    """A float32 tensor with std = gain / sqrt(fan_in), the same for the same seed, name and shape.

    Scaled, so that attention really mixes the tokens: one wrong block of KV cache moves the log-probabilities by tenths.
    """
    import torch

    digest = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:7], "little")
    return torch.randn(*shape, generator=torch.Generator().manual_seed(digest)) * (gain / math.sqrt(fan_in))


def byte_alphabet() -> list[str]:
    """The printable stand-in for each byte that the ByteLevel tokenizer uses: itself, or a letter from U+0100 on."""
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters, shifted = [], 0
    for byte in range(256):
        letters.append(chr(byte if byte in plain else 0x100 + shifted))
        shifted += byte not in plain
    return letters


def tokenizer_files(vocabulary: int, positions: int) -> dict[str, dict]:
    """File name -> content, for a model with that many token ids and positions."""
    words = {letter: byte for byte, letter in enumerate(byte_alphabet())} | {"<s>": BOS, "</s>": EOS}
    words |= {f"\u0120word{i}": i for i in range(FIRST_FILLER, vocabulary)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": BOS, "content": "<s>", **plain}, {"id": EOS, "content": "</s>", **plain}],
        "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": words, "merges": []},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>",
              "model_max_length": positions, "clean_up_tokenization_spaces": False}
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config,
            "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS}}


def write_json(folder: Path, files: dict[str, dict]) -> None:
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def write_once(folder: Path, recipe: dict, write: Callable[[Path], None]) -> Path:
    """Calls `write(folder)` unless the folder already holds exactly what this recipe makes; returns the folder."""
    wanted = json.dumps(recipe, sort_keys=True)
    stamp = folder / "kvern-model.json"  # written last: a folder with it is whole
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    write(folder)
    stamp.write_text(wanted)
    return folder

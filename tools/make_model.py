#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small random model with a byte-level tokenizer to a folder; needs no network.

The weights are random but scaled, so that one wrong block of KV cache moves the log-probabilities by tenths. (vLLM's own
dummy weights are too small for that: swapped KV can leave the answer as it is.)

    tools/make_model.py FOLDER [--preset demo|test] [--dtype float32] [--layers N ...]    a Llama of any size
    tools/make_model.py FOLDER --kind gemma2 [--dtype bfloat16] [--seed N]                another kind of KV cache
    tools/make_model.py FOLDER --lora-of MODEL --seed N                                   an adapter for a model
"""
from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from models.adapter import RANK, write_adapter
from models.kinds import NAMES, dtype_of, write_kind
from models.llama import PRESETS, ModelSpec, write_model


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--kind", choices=NAMES, help="the kind of KV cache")
    what.add_argument("--preset", choices=PRESETS, help="the size of a Llama (demo)")
    what.add_argument("--lora-of", type=Path, metavar="MODEL", help="write an adapter for the model in this folder")
    shape = parser.add_argument_group("the shape of a Llama, where it is not that of the preset")
    for field in dataclasses.fields(ModelSpec):
        group = parser if field.name in ("dtype", "seed") else shape
        group.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default))
    args = parser.parse_args()
    shaped = [name for name in changes(args) if name not in ("dtype", "seed")]
    if shaped and (args.kind or args.lora_of):
        parser.error(f"--{shaped[0].replace('_', '-')} goes with --preset only")
    return args


def changes(args: argparse.Namespace) -> dict:
    """The fields of ModelSpec that the command line gives."""
    given = {field.name: getattr(args, field.name) for field in dataclasses.fields(ModelSpec)}
    return {name: value for name, value in given.items() if value is not None}


def main() -> None:
    args = parse()
    if args.lora_of:
        write_adapter(args.folder, args.lora_of, args.seed or 1)
        print(f"{args.folder}: adapter of rank {RANK} for {args.lora_of}")
    elif args.kind:
        write_kind(args.folder, args.kind, args.dtype or "", args.seed or 1)
        print(f"{args.folder}: {args.kind}, {args.dtype or dtype_of(args.kind)}")
    else:
        spec = dataclasses.replace(PRESETS[args.preset or "demo"], **changes(args))
        write_model(args.folder, spec)
        print(f"{args.folder}: {spec.parameters / 1e6:.1f} M parameters, {spec.dtype}, "
              f"KV cache {spec.kv_bytes_per_token} B a token ({spec.kv_bytes_per_token * 8192 / 2**20:.0f} MiB for 8K)")


if __name__ == "__main__":
    main()

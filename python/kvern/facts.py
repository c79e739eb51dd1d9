# SPDX-License-Identifier: Apache-2.0
"""What has to be known about an engine before bytes may be shared: read out of vLLM's configuration, nothing computed.

Every function here asks vLLM for what it has resolved and says plainly when it can't be served. Features are detected, never
versions.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


class Unsupported(Exception):
    """This model or setting can't be served: the engine runs on without offload. The text says why."""


@dataclass(frozen=True)
class Group:
    """One KV cache group: layers whose blocks come and go together.

    kind: "full", "window" or "state". layers: number in the model and name, of this rank, in the model's order.
    kv_heads: of this rank, as total_kv_heads is of the whole model; for a state the parts that the ranks hold.
    window_tokens: a token sees so many, itself included; 0 for none. bytes_per_token: of all layers and heads of the whole
    model; 0 for a state. first_layer: of `layers`, counted within the group in the whole model.
    """

    kind: str
    layers: tuple[tuple[int, str], ...]
    layer_numbers: str
    first_layer: int
    block_tokens: int
    window_tokens: int
    kv_heads: int
    head_size: int
    head_size_v: int
    total_layers: int
    total_kv_heads: int
    bytes_per_token: int
    detail: str


def layer_number(name: str) -> int:
    """The one whole number among the dotted parts of a layer's name ("model.layers.7.self_attn.attn" -> 7)."""
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    if len(numbers) != 1:
        raise Unsupported(f"layer {name} has {len(numbers)} numbers in its name, so its place in the model is not clear")
    return numbers[0]


def ranges(numbers: list[int]) -> str:
    """Ascending numbers as text: [0, 1, 2, 5] -> "0-2,5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def served_groups(vllm_config: Any, kv_cache_config: Any) -> list[Group]:
    """The model's KV cache groups, in vLLM's order.

    Raises Unsupported for what is not full attention, a sliding window or a state that is kept at the ends of steps, and for
    context parallelism.
    """
    parallel = vllm_config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise Unsupported(f"{name} is {getattr(parallel, name)}; context parallelism is not served")
    groups = [_served_group(vllm_config, group) for group in kv_cache_config.kv_cache_groups]
    if not groups:
        raise Unsupported("the model has no KV cache")
    if parallel.pipeline_parallel_size > 1 and len(groups) > 1:
        raise Unsupported("several KV cache groups under pipeline parallelism")
    return groups


def _served_group(vllm_config: Any, group: Any) -> Group:
    spec = group.kv_cache_spec
    if not getattr(group, "enable_kv_transfer", True) or getattr(group, "host_resident", False):
        raise Unsupported("a KV cache group that connectors may not move")
    # The class decides: a window layer that vLLM treats as full attention is a FullAttentionSpec with a window noted in it.
    kind = {"FullAttentionSpec": "full", "MLAAttentionSpec": "full", "SlidingWindowSpec": "window",
            "MambaSpec": "state"}.get(type(spec).__name__)
    if kind is None:
        raise Unsupported(f"the model's KV cache is a {type(spec).__name__}; full attention, sliding windows and states are "
                          "served")
    if kind == "window" and getattr(spec, "extra_retained_tokens", 0):
        raise Unsupported("a sliding window that keeps more tokens than it sees")
    if kind == "state":
        _check_state(spec)
    layers = tuple(sorted((layer_number(name), name) for name in group.layer_names))
    numbers = [number for number, _ in layers]
    parallel, model = vllm_config.parallel_config, vllm_config.model_config
    first_layer, total_layers = 0, len(layers)
    if parallel.pipeline_parallel_size > 1:
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise Unsupported("the layers with KV cache are not consecutive")
        first_layer, total_layers = numbers[0], model.get_total_num_hidden_layers()
        numbers = list(range(total_layers))
    heads, total_heads = _heads(vllm_config, spec)
    head_size = getattr(spec, "head_size", 0)
    detail = f"{spec.shapes}{spec.dtypes}" if kind == "state" else str(spec.dtype)
    per_token = 0 if kind == "state" else spec.page_size_bytes * total_layers * total_heads // (spec.block_size * heads)
    return Group(kind, layers, ranges(numbers), first_layer, spec.block_size, getattr(spec, "sliding_window", None) or 0
                 if kind == "window" else 0, heads, head_size, getattr(spec, "head_size_v", None) or head_size, total_layers,
                 total_heads, per_token, detail)


def _check_state(spec: Any) -> None:
    mode = getattr(spec, "mamba_cache_mode", "none")
    if mode != "align":
        raise Unsupported(f"the model has states and mamba_cache_mode is '{mode}': none is kept to go on from; start vLLM with "
                          "prefix caching on")
    if getattr(spec, "num_speculative_blocks", 0):
        raise Unsupported("the model has states and speculative decoding is on: a state may be of tokens that are taken back")


def _heads(vllm_config: Any, spec: Any) -> tuple[int, int]:
    """KV heads of a rank and of the whole model; a state and a latent that all ranks hold alike count as one part a rank, or
    as one."""
    ranks = vllm_config.parallel_config.tensor_parallel_size
    kind = type(spec).__name__
    if kind == "MLAAttentionSpec" or getattr(spec, "tp_replicated", False):
        return 1, 1
    if kind == "MambaSpec":
        return 1, ranks
    total = vllm_config.model_config.get_total_num_kv_heads()
    # Groups may have heads of their own; what then can't be told is kept apart by rank.
    return spec.num_kv_heads, total if max(1, total // ranks) == spec.num_kv_heads else spec.num_kv_heads * ranks


def hash_block_tokens(kv_cache_config: Any, groups: list[Group]) -> int:
    """Tokens of the blocks that vLLM hashes."""
    return getattr(kv_cache_config, "hash_block_size", None) or math.gcd(*(group.block_tokens for group in groups))


def chunk_basis(kv_cache_config: Any, groups: list[Group]) -> tuple[int, int, bool]:
    """What a chunk's size depends on: tokens that it must be a multiple of, bytes of a token, whether there are states."""
    multiple = math.lcm(*(group.block_tokens for group in groups), hash_block_tokens(kv_cache_config, groups),
                        getattr(kv_cache_config, "cache_hit_alignment_tokens", None) or 1)
    return multiple, sum(group.bytes_per_token for group in groups), any(group.kind == "state" for group in groups)


def loads_are_whole(groups: list[Group]) -> bool:
    """True if vLLM can't go on from an earlier boundary when a load fails: windows and states are only there at its end."""
    return len(groups) > 1 or groups[0].kind != "full"


def check_hash(vllm_config: Any) -> str:
    """The name of the block hash. Raises Unsupported for one that others can make collide."""
    algorithm = str(getattr(vllm_config.cache_config, "prefix_caching_hash_algo", "builtin"))
    if not algorithm.startswith("sha256"):
        raise Unsupported(
            f"prefix_caching_hash_algo {algorithm} is not collision resistant, so a shared store could hand out another "
            "prompt's KV; use sha256")
    return algorithm


def hash_seed() -> tuple[str, bool]:
    """The block hash's start value in hex, and whether every process of this configuration gets the same one."""
    from vllm.v1.core import kv_cache_utils

    seed = kv_cache_utils.NONE_HASH
    stable = os.getenv("PYTHONHASHSEED") is not None or hasattr(kv_cache_utils, "DEFAULT_NONE_HASH_SEED")
    return bytes(seed).hex(), stable


def backend_name(vllm_config: Any, layer_name: str) -> str:
    """What packs a page: the attention backend of a layer and, on a CPU, the instruction set it has chosen.

    Raises Unsupported where the layer does not tell, since equal bytes can't be proven then.
    """
    layer = vllm_config.compilation_config.static_forward_context.get(layer_name)
    backend = getattr(layer, "attn_backend", None)
    if backend is None and hasattr(layer, "get_attn_backend"):
        backend = layer.get_attn_backend()
    if backend is None:
        raise Unsupported(f"layer {layer_name} does not tell its attention backend")
    name = backend.get_name()
    if name == "CPU_ATTN":
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        cache = vllm_config.cache_config
        name += ":" + _get_attn_isa(layer.dtype if hasattr(layer, "dtype") else vllm_config.model_config.dtype,
                                    cache.block_size, layer.head_size, cache.cache_dtype)
    return name


def layout_name(kv_cache_config: Any, tensor: torch.Tensor) -> str:
    """The order of the dimensions of KV memory: vLLM's name, and shape and strides of one layer without the blocks.

    tensor: [blocks, ...], any dtype.
    """
    name = getattr(kv_cache_config, "kv_cache_layout", None) or os.getenv("VLLM_KV_CACHE_LAYOUT") or "default"
    return f"{name}:{list(tensor.shape[1:])}:{list(tensor.stride()[1:])}"


@dataclass(frozen=True)
class Pages:
    """Where the pages of one layer lie: page b holds `page_bytes` bytes from b * stride_bytes on."""

    page_bytes: int
    stride_bytes: int


def pages_of(name: str, tensor: Any, num_blocks: int) -> Pages:
    """The pages of a layer. tensor: [rows, ...], where a block may be several rows; dense within a row, in any order.

    Raises Unsupported where the bytes of a block are not one piece of memory.
    """
    if not isinstance(tensor, torch.Tensor):
        raise Unsupported(f"KV memory of layer {name} is not one tensor")
    expected = 1
    for stride, size in sorted(zip(tensor.stride()[1:], tensor.shape[1:], strict=True)):
        if size > 1 and stride != expected:
            raise Unsupported(f"a block of layer {name} is not one piece of memory")
        expected *= size
    rows = tensor.shape[0]
    if rows == 0 or rows % num_blocks != 0:
        raise Unsupported(f"KV memory of layer {name} has {rows} rows for {num_blocks} blocks")
    rows_per_block = rows // num_blocks
    if rows_per_block > 1 and tensor.stride(0) != expected:
        raise Unsupported(f"a block of layer {name} is {rows_per_block} rows that do not follow each other")
    item_bytes = tensor.element_size()
    return Pages(expected * rows_per_block * item_bytes, tensor.stride(0) * rows_per_block * item_bytes)


def identity_json(vllm_config: Any, kv_cache_config: Any, groups: list[Group], chunk_tokens: int,
                  tensors: list[torch.Tensor]) -> str:
    """The identity as far as a worker knows it (docs/format.md, section 2), in whole-model terms.

    The scheduler half fills in model, hash_seed, tenant and epoch. `tensors`: the KV memory of one layer of each group.
    """
    import vllm

    described = []
    for group, tensor in zip(groups, tensors, strict=True):
        # The heads of a rank stand in the shard.
        layout = re.sub(rf"\b{group.kv_heads}\b", "H", layout_name(kv_cache_config, tensor), count=1)
        described.append({
            "kind": group.kind,
            "layer_numbers": group.layer_numbers,
            "dtype": f"{vllm_config.cache_config.cache_dtype}:{tensor.dtype}:{group.detail}",
            "layout": layout,
            "backend": backend_name(vllm_config, group.layers[0][1]),
            "layers": group.total_layers,
            "kv_heads": group.total_kv_heads,
            "head_size": group.head_size,
            "head_size_v": group.head_size_v,
            "block_tokens": group.block_tokens,
            "window_tokens": group.window_tokens,
        })
    return json.dumps({
        "format": 2,
        "engine": "vllm",
        "engine_version": vllm.__version__,
        "model": "",
        "kv_dtype": str(vllm_config.cache_config.cache_dtype),
        "groups": described,
        "chunk_tokens": chunk_tokens,
        "hash_algorithm": check_hash(vllm_config),
        "hash_seed": "",
        "parallel": "",
        "lora": "digest" if vllm_config.lora_config else "none",
        "tenant": "",
        "epoch": "",
    })


def shard_of(vllm_config: Any, group: Group) -> tuple[tuple[int, int, int, int], int, int]:
    """(first layer, last layer, first KV head, last KV head) of this rank, inclusive; then its number among the ranks that
    hold the same, and how many those are."""
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    size, rank = vllm_config.parallel_config.tensor_parallel_size, get_tensor_model_parallel_rank()
    replicas = max(1, size * group.kv_heads // group.total_kv_heads)
    first_head = rank // replicas * group.kv_heads
    last_layer = group.first_layer + len(group.layers) - 1
    return (group.first_layer, last_layer, first_head, first_head + group.kv_heads - 1), rank % replicas, replicas


def model_folder(vllm_config: Any) -> str:
    """The folder with the model's weights. Raises ValueError where it is not on this host."""
    model = vllm_config.model_config.model
    if os.path.isdir(model):
        return model
    try:
        from huggingface_hub import snapshot_download

        return snapshot_download(model, revision=vllm_config.model_config.revision, local_files_only=True)
    except Exception as error:
        raise ValueError(f"option model_id: the weights of '{model}' are not in a folder on this host ({error}); "
                         "set model_id to a name of your own for these weights") from error


class Adapters:
    """Digests of LoRA adapters, for what the block hash does not know: which weights a name and path stand for.

    A digest is of use only if it is of the weights that the engine has loaded, and nobody says when it loaded them. So only
    adapters count whose files have not changed since before the engine started; any other is computed, not served.
    """

    CLOCK_MARGIN_S = 5.0  # the file server's clock may be so much behind

    def __init__(self, started_at: float):
        self._unchanged_since = started_at - self.CLOCK_MARGIN_S
        self._digests: dict[str, tuple[tuple, str]] = {}

    def digest(self, path: str) -> str | None:
        """64 hex digits, or None if the adapter can't be told apart safely. Reads the whole adapter at its first use."""
        try:
            files = sorted(entry for entry in Path(path).iterdir() if entry.is_file())
            seen = tuple((entry.name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
                         for entry in files for stat in [entry.stat()])
            if not files or max(entry[4] for entry in seen) > self._unchanged_since * 1e9:
                return None
            known = self._digests.get(path)
            if known is None or known[0] != seen:
                known = self._digests[path] = (seen, _digest_of(files))
            return known[1]
        except OSError:
            return None


def _digest_of(files: list[Path]) -> str:
    total = hashlib.sha256(b"kvern adapter 1")
    for file in files:
        with file.open("rb") as content:
            part = hashlib.file_digest(content, "sha256").digest()
        name = file.name.encode()
        total.update(len(name).to_bytes(8, "little") + name + part)
    return total.hexdigest()


def ranks_on_host(vllm_config: Any) -> int:
    """How many workers share this host's staging."""
    parallel = vllm_config.parallel_config
    ranks = getattr(parallel, "local_world_size", None) or parallel.world_size
    return max(1, ranks * max(1, getattr(parallel, "data_parallel_size_local", 1) or 1))

# SPDX-License-Identifier: Apache-2.0
"""What has to be known about an engine before bytes may be shared: read out of vLLM's configuration, nothing computed.

Every function here asks vLLM for what it has resolved and says plainly when it can't be served. Features are detected, never
versions.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

import torch


class Unsupported(Exception):
    """This model or setting can't be served: the engine runs on without offload. The text says why."""


@dataclass(frozen=True)
class Group:
    """The one KV cache group that is served.

    layers: names and numbers of the layers of this rank, in the model's order.
    block_tokens: tokens of one block. bytes_per_token: of the whole model, all layers and heads.
    """

    layers: tuple[tuple[int, str], ...]
    block_tokens: int
    kv_heads: int  # of this rank
    head_size: int
    head_size_v: int
    total_layers: int  # of the whole model
    total_kv_heads: int
    bytes_per_token: int


def layer_number(name: str) -> int:
    """The one whole number among the dotted parts of a layer's name ("model.layers.7.self_attn.attn" -> 7)."""
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    if len(numbers) != 1:
        raise Unsupported(f"layer {name} has {len(numbers)} numbers in its name, so its place in the model is not clear")
    return numbers[0]


def served_group(vllm_config: Any, kv_cache_config: Any) -> Group:
    """The group to serve.

    Raises Unsupported for several groups, other than full attention, context parallelism, or hash blocks of another size.
    """
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise Unsupported(f"the model has {len(groups)} KV cache groups; one group of full attention is served")
    spec = groups[0].kv_cache_spec
    # The class decides: a window layer that vLLM treats as full attention is a FullAttentionSpec with a window noted in it.
    if type(spec).__name__ != "FullAttentionSpec":
        raise Unsupported(f"the model's KV cache is a {type(spec).__name__}; full attention is served")
    parallel = vllm_config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise Unsupported(f"{name} is {getattr(parallel, name)}; context parallelism is not served")
    hash_block = getattr(kv_cache_config, "hash_block_size", None) or spec.block_size
    if hash_block != spec.block_size:
        raise Unsupported(f"blocks are hashed by {hash_block} tokens and kept by {spec.block_size}")
    layers = tuple(sorted((layer_number(name), name) for name in groups[0].layer_names))
    numbers = [number for number, _ in layers]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Unsupported("the layers with KV cache are not consecutive")
    model = vllm_config.model_config
    total_heads = max(model.get_total_num_kv_heads(), spec.num_kv_heads)
    total_layers = len(layers) if parallel.pipeline_parallel_size == 1 else model.get_total_num_hidden_layers()
    item_bytes = torch.empty(0, dtype=spec.dtype).element_size()
    head_size_v = getattr(spec, "head_size_v", None) or spec.head_size
    return Group(layers, spec.block_size, spec.num_kv_heads, spec.head_size, head_size_v, total_layers, total_heads,
                 total_layers * total_heads * (spec.head_size + head_size_v) * item_bytes)


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
    if backend is None:
        raise Unsupported(f"layer {layer_name} does not tell its attention backend")
    name = backend.get_name()
    if name.startswith("CPU"):
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


def identity_json(vllm_config: Any, kv_cache_config: Any, group: Group, chunk_tokens: int, tensor: torch.Tensor) -> str:
    """The identity as far as a worker knows it (docs/format.md, section 2), in whole-model terms.

    The scheduler half fills in model, hash_seed, tenant and epoch. `tensor` is the KV memory of one layer.
    """
    import vllm

    shard_free_layout = re.sub(rf"\b{group.kv_heads}\b", "H", layout_name(kv_cache_config, tensor), count=1)
    return json.dumps({
        "format": 1,
        "engine": "vllm",
        "engine_version": vllm.__version__,
        "model": "",
        "kv_dtype": f"{vllm_config.cache_config.cache_dtype}:{tensor.dtype}",
        "groups": [{
            "kind": "full",
            "layers": group.total_layers,
            "kv_heads": group.total_kv_heads,
            "head_size": group.head_size,
            "head_size_v": group.head_size_v,
            "block_tokens": group.block_tokens,
        }],
        "layout": shard_free_layout,
        "backend": backend_name(vllm_config, group.layers[0][1]),
        "chunk_tokens": chunk_tokens,
        "hash_algorithm": check_hash(vllm_config),
        "hash_seed": "",
        "parallel": "",
        "lora": "in-hash" if vllm_config.lora_config else "none",
        "tenant": "",
        "epoch": "",
    })


def shard_of(vllm_config: Any, group: Group) -> tuple[int, int, int, int]:
    """(first layer, last layer, first KV head, last KV head) of this rank, inclusive, in the whole model."""
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    size = vllm_config.parallel_config.tensor_parallel_size
    first_head = get_tensor_model_parallel_rank() * group.total_kv_heads // size
    return group.layers[0][0], group.layers[-1][0], first_head, first_head + group.kv_heads - 1


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


def ranks_on_host(vllm_config: Any) -> int:
    """How many workers share this host's staging."""
    parallel = vllm_config.parallel_config
    ranks = getattr(parallel, "local_world_size", None) or parallel.world_size
    return max(1, ranks * max(1, getattr(parallel, "data_parallel_size_local", 1) or 1))

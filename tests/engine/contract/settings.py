# SPDX-License-Identifier: Apache-2.0
"""The models and settings that are simulated: KV cache specs layer by layer, and the configuration objects of vLLM.

Everything vLLM would work out of a model's layers (groups, block sizes, the place of every layer in memory) is worked out
by vLLM's own functions, so groups alias one allocation and block ids are unique across groups as in the real engine.
"""
from __future__ import annotations

import copy
import functools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from vllm.config import (
    CacheConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

try:
    from vllm.v1.core import kv_cache_planning as planning  # since 0.33
except ImportError:
    planning = kv_cache_utils

BLOCK = 8  # tokens
CHUNK = 16
LAYERS = 4
HEADS = 4  # KV heads of the whole model
HEAD_SIZE = 4
MAX_TOKENS = 128
STEP_TOKENS = 32
WINDOW = 20
DTYPE = torch.float32


@dataclass(frozen=True)
class Setting:
    """One model on one arrangement of ranks. `layers`: a letter a layer: f full, w window, s state, m MLA."""

    name: str
    layers: str = "ffff"
    tp: int = 1
    pp: int = 1
    drafts: int = 0  # tokens a step of a speculative decoder
    asynchronous: bool = False  # asynchronous scheduling: one step is scheduled ahead of the results

    def __str__(self) -> str:
        return self.name

    @property
    def heads_of_rank(self) -> int:
        return HEADS // self.tp

    @property
    def ranks(self) -> list[tuple[int, int]]:
        """(pipeline stage, tensor-parallel rank), in the order of vLLM's workers."""
        return [(pp, tp) for pp in range(self.pp) for tp in range(self.tp)]


SETTINGS = {setting.name: setting for setting in [
    Setting("full"),
    Setting("full tp2", tp=2),
    Setting("full tp4", tp=4),
    Setting("full pp2", pp=2),
    Setting("full pp2 tp2", pp=2, tp=2),
    Setting("full drafts", drafts=3),
    Setting("full asynchronous", asynchronous=True),
    Setting("full asynchronous drafts", drafts=2, asynchronous=True),
    Setting("mla tp2", layers="mmmm", tp=2),
    Setting("window", layers="wwww"),
    Setting("window full", layers="wfwf"),
    Setting("window full tp2", layers="wfwf", tp=2),
    Setting("window window full", layers="wwwf"),
    Setting("state full", layers="sfsf"),
    Setting("state full tp2", layers="sfsf", tp=2),
    Setting("state window full", layers="swff"),
]}
ONE_GROUP = [name for name, setting in SETTINGS.items() if set(setting.layers) == {"f"}]


class NamedBackend:
    """The attention backend that the layers tell."""

    @staticmethod
    def get_name() -> str:
        return "CONTRACT"


class NamedLayer:
    attn_backend = NamedBackend

    @staticmethod
    def get_attn_backend() -> type:
        return NamedBackend


def layer_name(layer: int) -> str:
    return f"model.layers.{layer}.self_attn.attn"


def layer_spec(setting: Setting, kind: str) -> KVCacheSpec:
    """As the attention layers of a model on a CPU would tell it."""
    heads = setting.heads_of_rank
    attention = {"block_size": BLOCK, "dtype": DTYPE}
    if kind == "f":
        return FullAttentionSpec(num_kv_heads=heads, head_size=HEAD_SIZE, **attention)
    if kind == "w":
        return SlidingWindowSpec(num_kv_heads=heads, head_size=HEAD_SIZE, sliding_window=WINDOW, **attention)
    if kind == "m":
        return MLAAttentionSpec(num_kv_heads=1, head_size=2 * HEAD_SIZE, **attention)
    page = FullAttentionSpec(num_kv_heads=heads, head_size=HEAD_SIZE, **attention).page_size_bytes
    # Two states, shorter together than a page: the rest of it is nobody's.
    return MambaSpec(block_size=BLOCK, shapes=((page // 16,), (page // 8,)), dtypes=(DTYPE, DTYPE),
                     page_size_padded=page, mamba_cache_mode="align")


def stage_layers(setting: Setting, stage: int) -> range:
    """The layers of a pipeline stage."""
    return range(LAYERS * stage // setting.pp, LAYERS * (stage + 1) // setting.pp)


def rank_specs(setting: Setting, stage: int) -> dict[str, KVCacheSpec]:
    return {layer_name(layer): layer_spec(setting, setting.layers[layer]) for layer in stage_layers(setting, stage)}


@functools.cache
def model_folder() -> str:
    """A folder with the configuration of a model and no weights: nothing is ever computed with it."""
    folder = Path(tempfile.gettempdir()) / f"kvern-contract-model-{LAYERS}-{HEADS}-{HEAD_SIZE}"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "hidden_size": HEADS * HEAD_SIZE, "intermediate_size": 16, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD_SIZE, "vocab_size": 1000,
        "max_position_embeddings": 4 * MAX_TOKENS, "rms_norm_eps": 1e-6, "hidden_act": "silu",
        "tie_word_embeddings": False}))
    return str(folder)


@functools.cache
def group_layers(setting: Setting) -> list[list[int]]:
    """The layers of each KV cache group in the whole model, in vLLM's order of groups."""
    config = base_config(setting, True, "kvern.vllm")
    specs = {name: spec for stage in range(setting.pp) for name, spec in rank_specs(setting, stage).items()}
    groups = planning.get_kv_cache_groups(config, specs)
    return [sorted(layer for layer in range(LAYERS) if layer_name(layer) in group.layer_names) for group in groups]


def transfer_config(module: str, options: dict) -> KVTransferConfig:
    return KVTransferConfig(kv_connector="KvernConnector", kv_connector_module_path=module, kv_role="kv_both",
                            kv_load_failure_policy="recompute", kv_connector_extra_config=options)


@functools.cache
def base_config(setting: Setting, prefix_caching: bool, module: str) -> VllmConfig:
    """A resolved VllmConfig; seconds to make, so one a process and setting."""
    model = ModelConfig(model=model_folder(), skip_tokenizer_init=True, dtype="float32", max_model_len=MAX_TOKENS)
    config = VllmConfig(
        model_config=model,
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=prefix_caching,
                                 mamba_cache_mode="align" if "s" in setting.layers else "none"),
        scheduler_config=SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=STEP_TOKENS, max_model_len=MAX_TOKENS,
                                         is_encoder_decoder=False, enable_chunked_prefill=True),
        parallel_config=ParallelConfig(),
        kv_transfer_config=transfer_config(module, {"store": "file:///nowhere"}))
    # Set afterwards: a real start with so many ranks would look for devices and start processes, and a CPU's is never
    # asynchronous.
    config.scheduler_config.async_scheduling = setting.asynchronous
    config.parallel_config.tensor_parallel_size = setting.tp
    config.parallel_config.pipeline_parallel_size = setting.pp
    config.parallel_config.world_size = setting.tp * setting.pp
    config.cache_config.block_size = BLOCK
    config.cache_config.kv_cache_layout = "LBHNC"  # what a CPU resolves to
    if setting.drafts:
        config.speculative_config = SpeculativeConfig(method="ngram", num_speculative_tokens=setting.drafts,
                                                      prompt_lookup_max=2, prompt_lookup_min=1,
                                                      target_model_config=model,
                                                      target_parallel_config=config.parallel_config)
    return config


def engine_config(setting: Setting, prefix_caching: bool, module: str, options: dict, blocks: int) -> VllmConfig:
    """The configuration of one engine: a copy of the base with its own connector options, engine id and memory."""
    config = copy.copy(base_config(setting, prefix_caching, module))
    config.cache_config = copy.copy(config.cache_config)
    config.parallel_config = copy.copy(config.parallel_config)
    config.compilation_config = copy.copy(config.compilation_config)
    config.compilation_config.static_forward_context = {layer_name(layer): NamedLayer() for layer in range(LAYERS)}
    config.kv_transfer_config = transfer_config(module, options)
    config.cache_config.num_gpu_blocks_override = blocks
    return config


def memory_configs(setting: Setting, config: VllmConfig) -> tuple[list[KVCacheConfig], KVCacheConfig]:
    """Of each rank, and of the scheduler. Mirrors EngineCore._initialize_kv_caches from the specs on."""
    specs, memory = [rank_specs(setting, pp) for pp, _ in setting.ranks], [1 << 30] * len(setting.ranks)
    if hasattr(planning, "get_global_kv_cache_groups"):
        ranks = planning.get_kv_cache_configs(config, specs, memory, planning.get_global_kv_cache_groups(config, specs))
    else:
        ranks = planning.get_kv_cache_configs(config, specs, memory)
    for rank in ranks:
        rank.kv_cache_layout = config.cache_config.kv_cache_layout
    scheduler = kv_cache_utils.generate_scheduler_kv_cache_config(ranks)
    config.cache_config.num_gpu_blocks = scheduler.num_blocks
    scheduler_block, hash_block = kv_cache_utils.resolve_kv_cache_block_sizes(scheduler, config)
    alignment = kv_cache_utils.resolve_cache_hit_alignment_tokens(scheduler, config, scheduler_block, hash_block)
    for resolved in (*ranks, scheduler):
        resolved.hash_block_size = hash_block
        resolved.cache_hit_alignment_tokens = alignment
    return ranks, scheduler

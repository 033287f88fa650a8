"""Decoder-only families of transformers: two layers, random weights, a window of eight tokens where one has a
window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VOCABULARY = 99
POSITIONS = 128
WINDOW = 8

_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # Larger than usual, so that logits differ clearly between tokens.
    "initializer_range": 0.2,
}
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_TYPES = ["sliding_attention", "full_attention"]


def _made(name: str, /, config_name: str = "", **settings: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, config_name or f"{name}Config")(**settings)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def llama(**settings: Any) -> Any:
    """Llama 3: grouped heads, scaled rotary frequencies."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return _made("Llama", **{**_GROUPED, "rope_parameters": rope, **settings})


def gpt2() -> Any:
    """Learned positions, tied table."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_positions": POSITIONS, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2}
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes, **ends)).eval()


def gemma2() -> Any:
    """Soft caps of scores and logits, layers with a window."""
    return _made(
        "Gemma2",
        **_GROUPED,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=WINDOW,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=10.0,
        layer_types=_TYPES,
    )


#: Name → builder. The first three are exported by `make test`, all by `make test-llm`.
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": llama,
    "gpt2": gpt2,
    "gemma2": gemma2,
    "gemma3": lambda: _made(
        "Gemma3",
        "Gemma3TextConfig",
        **_GROUPED,
        head_dim=8,
        query_pre_attn_scalar=8,
        sliding_window=WINDOW,
        layer_types=_TYPES,
    ),
    "mistral": lambda: _made("Mistral", **_GROUPED, sliding_window=WINDOW),
    "mixtral": lambda: _made(
        "Mixtral", **_GROUPED, num_local_experts=4, num_experts_per_tok=2, sliding_window=None
    ),
    "olmo": lambda: _made("Olmo", **_GROUPED),
    "phi": lambda: _made("Phi", **_SMALL),
    "phi3": lambda: _made("Phi3", **_GROUPED),
    "qwen2": lambda: _made("Qwen2", **_GROUPED),
    "qwen3": lambda: _made("Qwen3", **_GROUPED, head_dim=8),
    "qwen3_moe": lambda: _made(
        "Qwen3Moe", **_GROUPED, head_dim=8, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24
    ),
    "smollm3": lambda: _made("SmolLM3", **_GROUPED, no_rope_layer_interval=2),
}
QUICK = ("llama", "gpt2", "gemma2")


def mamba(name: str = "Mamba", **settings: Any) -> Any:
    """States of a recurrence."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "initializer_range": 0.5}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return _made(name, **{"vocab_size": VOCABULARY, **sizes, **ends, **settings})

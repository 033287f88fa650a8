"""Small models of transformers with random weights, and what to call them with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 99

_TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


@dataclass(frozen=True)
class Architecture:
    """`build` gives the model and its example; `generates`: exported stage by stage, as `generate` calls it.

    `other`: another example with other extents, for models that are exported as one graph.
    """

    name: str
    build: Callable[[], nn.Module]
    example: Callable[[], dict[str, Tensor]]
    other: Callable[[], dict[str, Tensor]] | None = None
    generates: bool = False


def _tokens(batch: int, length: int) -> dict[str, Tensor]:
    ids = torch.randint(5, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(length))
    return {"input_ids": ids, "attention_mask": torch.ones(batch, length, dtype=torch.int64)}


def _pixels(batch: int) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(batch))}


def _speech() -> dict[str, Tensor]:
    return {"input_features": torch.randn(2, 16, 40, generator=torch.Generator().manual_seed(0))}


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**_TEXT))


def _distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64
    )
    return DistilBertForSequenceClassification(config)


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    text = {k: v for k, v in _TEXT.items() if k not in ("vocab_size", "max_position_embeddings")}
    return ViTForImageClassification(ViTConfig(**text, image_size=32, patch_size=8))


def _resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return ResNetForImageClassification(config)


def _clip() -> nn.Module:
    from transformers import CLIPConfig, CLIPModel

    vision = {k: v for k, v in _TEXT.items() if k not in ("vocab_size", "max_position_embeddings")}
    config = CLIPConfig(
        text_config={**_TEXT, "eos_token_id": 2, "bos_token_id": 1},
        vision_config={**vision, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    return CLIPModel(config)


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, **_TOKENS)
    )


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**_TEXT, num_key_value_heads=2, **_TOKENS))


def _qwen() -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**_TEXT, num_key_value_heads=2, head_dim=8, **_TOKENS))


def _t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        **{k: v for k, v in _TOKENS.items() if k != "bos_token_id"},
    )
    return T5ForConditionalGeneration(config)


def _whisper() -> nn.Module:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=20,
        max_target_positions=32,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **_TOKENS,
    )
    return WhisperForConditionalGeneration(config)


ARCHITECTURES = (
    Architecture("BERT", _bert, lambda: _tokens(2, 9), lambda: _tokens(3, 17)),
    Architecture("DistilBERT", _distilbert, lambda: _tokens(2, 9), lambda: _tokens(3, 17)),
    Architecture("ViT", _vit, lambda: _pixels(2), lambda: _pixels(3)),
    Architecture("ResNet", _resnet, lambda: _pixels(2), lambda: _pixels(3)),
    Architecture(
        "CLIP", _clip, lambda: {**_tokens(2, 9), **_pixels(2)}, lambda: {**_tokens(4, 12), **_pixels(3)}
    ),
    Architecture("GPT-2", _gpt2, lambda: _tokens(2, 9), generates=True),
    Architecture("Llama", _llama, lambda: _tokens(2, 9), generates=True),
    Architecture("Qwen3", _qwen, lambda: _tokens(2, 9), generates=True),
    Architecture("T5", _t5, lambda: _tokens(2, 9), generates=True),
    Architecture("Whisper", _whisper, _speech, generates=True),
)

"""More architectures at their published sizes, random weights: ExecuTorch's files beside `whole_models`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from whole_models import MODELS, Output, WholeModel, calibrate


def _image_model(model: nn.Module, field: str = "logits", size: int = 224) -> WholeModel:
    wrapped = Output(model, "pixel_values", field)
    calibrate(wrapped, torch.randn(4, 3, size, size))
    return WholeModel(wrapped, (torch.randn(1, 3, size, size),))


def _text_model(
    model: nn.Module, vocabulary: int, field: str = "last_hidden_state", tokens: int = 128
) -> WholeModel:
    return WholeModel(Output(model.eval(), "input_ids", field), (torch.randint(5, vocabulary, (1, tokens)),))


def _without_cache(config: Any) -> Any:
    config.use_cache = False
    return config


def resnet18() -> WholeModel:
    """ResNet-18, one image of 224 x 224."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000
    )
    return _image_model(ResNetForImageClassification(config))


def regnet_y_040() -> WholeModel:
    """RegNetY-4GF, one image of 224 x 224."""
    from transformers import RegNetConfig, RegNetForImageClassification

    config = RegNetConfig(
        depths=[2, 6, 12, 2], hidden_sizes=[128, 192, 512, 1088], groups_width=64, num_labels=1000
    )
    return _image_model(RegNetForImageClassification(config))


def convnext_tiny() -> WholeModel:
    """ConvNeXt-T, one image of 224 x 224."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return _image_model(ConvNextForImageClassification(ConvNextConfig(num_labels=1000)))


def segformer_b0() -> WholeModel:
    """SegFormer-B0, masks of 150 classes for one image of 512 x 512."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    return _image_model(SegformerForSemanticSegmentation(SegformerConfig(num_labels=150)), size=512)


def mobilevit_small() -> WholeModel:
    """MobileViT-S, one image of 256 x 256."""
    from transformers import MobileViTConfig, MobileViTForImageClassification

    return _image_model(MobileViTForImageClassification(MobileViTConfig(num_labels=1000)), size=256)


def deit_small() -> WholeModel:
    """DeiT-S, one image of 224 x 224."""
    from transformers import DeiTConfig, DeiTForImageClassification

    config = DeiTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_labels=1000)
    return _image_model(DeiTForImageClassification(config))


def clip_vision() -> WholeModel:
    """The image half of CLIP ViT-B/32, one image of 224 x 224."""
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    return _image_model(CLIPVisionModelWithProjection(CLIPVisionConfig()), "image_embeds")


def bert_base(tokens: int = 128) -> WholeModel:
    """BERT-base; more positions than published where the text is longer."""
    from transformers import BertConfig, BertModel

    config = BertConfig(max_position_embeddings=max(512, tokens))
    return _text_model(BertModel(config), 30522, tokens=tokens)


def distilbert(tokens: int = 128) -> WholeModel:
    """DistilBERT; more positions than published where the text is longer."""
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(max_position_embeddings=max(512, tokens))
    return _text_model(DistilBertModel(config), 30522, tokens=tokens)


def albert_base() -> WholeModel:
    """ALBERT-base, 128 tokens: one layer's weights, twelve times."""
    from transformers import AlbertConfig, AlbertModel

    config = AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    return _text_model(AlbertModel(config), 30000)


def llama_135m(tokens: int = 128) -> WholeModel:
    """A Llama of SmolLM's 135 M parameters, its tokens at once, logits of all of them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        tie_word_embeddings=True,
        max_position_embeddings=max(2048, tokens),
    )
    return _text_model(LlamaForCausalLM(_without_cache(config)), 49152, "logits", tokens)


def whisper_tiny_encoder() -> WholeModel:
    """The encoder of Whisper tiny, thirty seconds of sound."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    model = Output(WhisperEncoder(config).eval(), "input_features", "last_hidden_state")
    return WholeModel(model, (torch.randn(1, 80, 3000),))


PUBLISHED: dict[str, Callable[..., WholeModel]] = {
    **MODELS,
    "resnet18": resnet18,
    "regnet_y_040": regnet_y_040,
    "convnext_tiny": convnext_tiny,
    "segformer_b0": segformer_b0,
    "mobilevit_small": mobilevit_small,
    "deit_small": deit_small,
    "clip_vision": clip_vision,
    "bert_base": bert_base,
    "distilbert": distilbert,
    "albert_base": albert_base,
    "llama_135m": llama_135m,
    "whisper_tiny_encoder": whisper_tiny_encoder,
}

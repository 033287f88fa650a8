"""Image models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.models.model_zoo import calibrate_batch_norm
from tests.models.zoo_model import Model


def images(batch: int, size: int, seed: int = 1) -> Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(seed))


def _image_model(module: nn.Module, size: int) -> Model:
    """At one image size and a batch of any size from 1 to 8."""
    batch = torch.export.Dim("batch", min=1, max=8)
    calls = [{"pixel_values": images(n, size)} for n in (2, 1)]
    return Model.of(module, *calls, dynamic={"pixel_values": {0: batch}})


class _PixelInput(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> None:
        self.model(pixel_values=pixels)


def _calibrated(module: nn.Module, size: int) -> Model:
    calibrate_batch_norm(_PixelInput(module), images(16, size, seed=2))
    return _image_model(module, size)


def vit() -> Model:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
    )
    return _image_model(ViTForImageClassification(config), 32)


def deit() -> Model:
    from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher

    config = DeiTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
    )
    return _image_model(DeiTForImageClassificationWithTeacher(config), 32)


def beit() -> Model:
    from transformers import BeitConfig, BeitForImageClassification

    config = BeitConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
        use_relative_position_bias=True,
    )
    return _image_model(BeitForImageClassification(config), 32)


def dinov2() -> Model:
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=56, patch_size=14, mlp_ratio=2
    )
    # Another size than the trained one: the position table is resampled (bicubic, antialiased).
    return _image_model(Dinov2Model(config), 42)


def convnext() -> Model:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 2, 1], image_size=64)
    return _image_model(ConvNextForImageClassification(config), 64)


def convnext_v2() -> Model:
    from transformers import ConvNextV2Config, ConvNextV2ForImageClassification

    config = ConvNextV2Config(hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 2, 1], image_size=64)
    return _image_model(ConvNextV2ForImageClassification(config), 64)


def swin() -> Model:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=64, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, mlp_ratio=2
    )
    return _image_model(SwinForImageClassification(config), 64)


def segformer() -> Model:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=32,
        num_labels=5,
    )
    return _calibrated(SegformerForSemanticSegmentation(config), 64)


def mobilevit() -> Model:
    from transformers import MobileViTConfig, MobileViTForImageClassification

    config = MobileViTConfig(
        image_size=64,
        hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
        num_attention_heads=4,
        initializer_range=0.2,
    )
    return _calibrated(MobileViTForImageClassification(config), 64)


def mobilenet_v2() -> Model:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(image_size=96, depth_multiplier=0.5, num_labels=10)
    return _calibrated(MobileNetV2ForImageClassification(config), 96)


def efficientnet() -> Model:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=64,
        width_coefficient=0.125,
        depth_divisor=8,
        depth_coefficient=0.5,
        hidden_dim=160,
        initializer_range=0.3,
        dropout_rate=0.0,
        num_labels=10,
    )
    return _calibrated(EfficientNetForImageClassification(config), 64)


def resnet() -> Model:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[16, 24], depths=[1, 2], num_labels=10)
    return _calibrated(ResNetForImageClassification(config), 64)


def regnet() -> Model:
    from transformers import RegNetConfig, RegNetForImageClassification

    config = RegNetConfig(
        embedding_size=8, hidden_sizes=[16, 24], depths=[1, 2], groups_width=8, num_labels=10
    )
    return _calibrated(RegNetForImageClassification(config), 64)


def yolos() -> Model:
    from transformers import YolosConfig, YolosForObjectDetection

    config = YolosConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=[32, 48],
        patch_size=8,
        num_detection_tokens=7,
        use_mid_position_embeddings=False,
    )
    return _image_model(YolosForObjectDetection(config), 32)


def clip_vision() -> Model:
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    config = CLIPVisionConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=32,
        patch_size=8,
        projection_dim=16,
    )
    return _image_model(CLIPVisionModelWithProjection(config), 32)

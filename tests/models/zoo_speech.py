"""Speech encoders on raw waves and on spectrograms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.models.zoo_model import Model

_SMALL: dict[str, Any] = {
    "vocab_size": 30,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


def waves(batch: int, samples: int) -> Tensor:
    return torch.randn(batch, samples, generator=torch.Generator().manual_seed(samples))


def _wave_model(module: nn.Module) -> Model:
    samples = torch.export.Dim("samples", min=400, max=2000)
    calls = [{"input_values": waves(1, n)} for n in (800, 1601)]
    return Model.of(
        module,
        *calls,
        dynamic={"input_values": {1: samples}},
        options={"prefer_deferred_runtime_asserts_over_guards": True},
    )


def wav2vec2() -> Model:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    return _wave_model(Wav2Vec2ForCTC(Wav2Vec2Config(**_SMALL)))


def hubert() -> Model:
    from transformers import HubertConfig, HubertModel

    return _wave_model(
        HubertModel(HubertConfig(**_SMALL, do_stable_layer_norm=True, feat_extract_norm="layer"))
    )


def wavlm() -> Model:
    from transformers import WavLMConfig, WavLMModel

    return _wave_model(WavLMModel(WavLMConfig(**_SMALL, num_buckets=16, max_bucket_distance=40)))


def whisper_encoder() -> Model:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=48,
        num_mel_bins=10,
        max_source_positions=20,
    )
    batch = torch.export.Dim("batch", min=1, max=4)
    calls = [{"input_features": torch.randn(n, 10, 40)} for n in (2, 1)]
    return Model.of(WhisperEncoder(config), *calls, dynamic={"input_features": {0: batch}})


def spectrogram_transformer() -> Model:
    from transformers import ASTConfig, ASTForAudioClassification

    config = ASTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        patch_size=4,
        frequency_stride=3,
        time_stride=3,
        max_length=24,
        num_mel_bins=16,
    )
    return Model.of(ASTForAudioClassification(config), {"input_values": torch.randn(1, 24, 16)})

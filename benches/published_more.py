"""Further architectures of `docs/reference/models.md` at their published sizes, as data: the configuration of
transformers, what differs from its defaults, the class, and what the model is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from whole_models import Output, WholeModel

TEXT, IMAGE, WAVE, SPECTROGRAM = "input_ids", "pixel_values", "input_values", "spectrogram"


@dataclass(frozen=True)
class Published:
    """A model with random weights: `Model(Config(**settings))`, one of its outputs, one input."""

    config: str
    model: str
    output: str
    given: str
    settings: dict[str, Any] = field(default_factory=dict)
    #: The part of the model that is called: `get_encoder`, for encoder-decoders.
    part: str = ""
    #: Width and height of images, samples of a wave.
    size: int = 224

    def __call__(self, tokens: int = 128) -> WholeModel:
        import transformers

        config = getattr(transformers, self.config)(**self.settings)
        config.use_cache = False
        module: nn.Module = getattr(transformers, self.model)(config).eval()
        if self.part:
            module = getattr(module, self.part)()
        argument = "input_values" if self.given == SPECTROGRAM else self.given
        return WholeModel(Output(module, argument, self.output), (self._input(config, tokens),))

    def _input(self, config: Any, tokens: int) -> Tensor:
        if self.given == TEXT:
            return torch.randint(5, config.vocab_size, (1, tokens))
        if self.given == IMAGE:
            return torch.randn(1, 3, self.size, self.size)
        if self.given == WAVE:
            return torch.randn(1, self.size)
        return torch.randn(1, config.max_length, config.num_mel_bins)


class Towers(nn.Module):
    """Texts and images side by side: the logits of every pair."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=ids, pixel_values=pixels).logits_per_image
        return logits


def _towers(prefix: str, tokens: int) -> WholeModel:
    import transformers

    config = getattr(transformers, f"{prefix}Config")()
    model = Towers(getattr(transformers, f"{prefix}Model")(config).eval())
    ids = torch.randint(5, config.text_config.vocab_size - 5, (1, tokens))
    return WholeModel(model, (ids, torch.randn(1, 3, 224, 224)))


def clip() -> WholeModel:
    """CLIP ViT-B/32: one image of 224 x 224, one text of 77 tokens."""
    return _towers("CLIP", 77)


def siglip() -> WholeModel:
    """SigLIP base, patches of 16: one image of 224 x 224, one text of 64 tokens."""
    return _towers("Siglip", 64)


class Decoder(nn.Module):
    """The decoder of an encoder-decoder over a text of both."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor, ids: Tensor) -> Tensor:
        hidden: Tensor = self.model(
            input_features=features, decoder_input_ids=ids, use_cache=False
        ).last_hidden_state
        return hidden


def whisper_tiny() -> WholeModel:
    """Whisper tiny: thirty seconds of sound, 64 tokens of text at once."""
    from transformers import WhisperConfig, WhisperModel

    sizes = {"encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    config = WhisperConfig(
        d_model=384, **sizes, **{k.replace("encoder", "decoder"): v for k, v in sizes.items()}
    )
    ids = torch.randint(5, config.vocab_size, (1, 64))
    return WholeModel(Decoder(WhisperModel(config).eval()), (torch.randn(1, 80, 3000), ids))


class Pictured(nn.Module):
    """A text beside the features of regions of an image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, regions: Tensor) -> Tensor:
        hidden: Tensor = self.model(input_ids=ids, visual_embeds=regions).last_hidden_state
        return hidden


def visual_bert() -> WholeModel:
    """VisualBERT: 128 tokens beside 36 regions."""
    from transformers import VisualBertConfig, VisualBertModel

    config = VisualBertConfig()
    regions = torch.randn(1, 36, config.visual_embedding_dim)
    return WholeModel(
        Pictured(VisualBertModel(config).eval()), (torch.randint(5, config.vocab_size, (1, 128)), regions)
    )


_HIDDEN, _LOGITS = "last_hidden_state", "logits"
_SMALL_OPUS = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "vocab_size": 58101}
_SMALL_OPUS |= {"encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "pad_token_id": 0}
_SMALL_OPUS |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
_BART = {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072}
_BART |= {"decoder_ffn_dim": 3072, "encoder_attention_heads": 12, "decoder_attention_heads": 12}
_QWEN2 = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
_QWEN2 |= {"num_key_value_heads": 2, "tie_word_embeddings": True}
_GEMMA3 = {"hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4}
_GEMMA3 |= {"num_key_value_heads": 1, "head_dim": 256}
_PYTHIA = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8}
_DEBERTA = {"vocab_size": 128100, "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12}
_DEBERTA |= {"intermediate_size": 3072, "relative_attention": True, "position_buckets": 256}
_DEBERTA |= {"norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"]}
_YOLOS = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "image_size": [512, 512]}

MORE: dict[str, Callable[..., WholeModel]] = {
    "beit_base": Published("BeitConfig", "BeitModel", _HIDDEN, IMAGE),
    "dinov2_small": Published(
        "Dinov2Config", "Dinov2Model", _HIDDEN, IMAGE, {"hidden_size": 384, "num_attention_heads": 6}
    ),
    "convnextv2_tiny": Published("ConvNextV2Config", "ConvNextV2ForImageClassification", _LOGITS, IMAGE),
    "swin_tiny": Published("SwinConfig", "SwinForImageClassification", _LOGITS, IMAGE),
    "yolos_tiny": Published("YolosConfig", "YolosModel", _HIDDEN, IMAGE, _YOLOS, size=512),
    "roberta_base": Published("RobertaConfig", "RobertaModel", _HIDDEN, TEXT),
    "electra_small": Published("ElectraConfig", "ElectraModel", _HIDDEN, TEXT),
    "mpnet_base": Published("MPNetConfig", "MPNetModel", _HIDDEN, TEXT),
    "deberta_v3_small": Published("DebertaV2Config", "DebertaV2Model", _HIDDEN, TEXT, _DEBERTA),
    "modernbert_base": Published("ModernBertConfig", "ModernBertModel", _HIDDEN, TEXT),
    "mobilebert": Published("MobileBertConfig", "MobileBertModel", _HIDDEN, TEXT),
    "squeezebert": Published("SqueezeBertConfig", "SqueezeBertModel", _HIDDEN, TEXT),
    "opt_125m": Published("OPTConfig", "OPTForCausalLM", _LOGITS, TEXT),
    "qwen2_500m": Published("Qwen2Config", "Qwen2ForCausalLM", _LOGITS, TEXT, _QWEN2),
    "gemma3_270m": Published("Gemma3TextConfig", "Gemma3ForCausalLM", _LOGITS, TEXT, _GEMMA3),
    "pythia_70m": Published("GPTNeoXConfig", "GPTNeoXForCausalLM", _LOGITS, TEXT, _PYTHIA),
    "t5_small_encoder": Published("T5Config", "T5Model", _HIDDEN, TEXT, part="get_encoder"),
    "bart_base_encoder": Published("BartConfig", "BartModel", _HIDDEN, TEXT, _BART, part="get_encoder"),
    "marian_encoder": Published(
        "MarianConfig", "MarianModel", _HIDDEN, TEXT, _SMALL_OPUS, part="get_encoder"
    ),
    "m2m_100_encoder": Published("M2M100Config", "M2M100Model", _HIDDEN, TEXT, part="get_encoder"),
    "wav2vec2_base": Published("Wav2Vec2Config", "Wav2Vec2ForCTC", _LOGITS, WAVE, size=16000),
    "hubert_base": Published("HubertConfig", "HubertModel", _HIDDEN, WAVE, size=16000),
    "wavlm_base": Published("WavLMConfig", "WavLMModel", _HIDDEN, WAVE, size=16000),
    "ast_base": Published("ASTConfig", "ASTModel", _HIDDEN, SPECTROGRAM),
    "clip": clip,
    "siglip_base": siglip,
    "whisper_tiny": whisper_tiny,
    "visual_bert": visual_bert,
}

"""The architectures of `transformers` that must work: small configurations with random weights.

Tested by `test_transformers.py`; the table in `docs/reference/models.md` is made from this list. A row that
does not work says why in `fails`.
"""

from __future__ import annotations

from tests.models import zoo_decoders as decoders
from tests.models import zoo_encoder_decoders as encoder_decoders
from tests.models import zoo_multimodal as multimodal
from tests.models import zoo_speech as speech
from tests.models import zoo_text as text
from tests.models import zoo_vision as vision
from tests.models.zoo_model import Architecture

_BATCH = "batch"
_TOKENS = "tokens"
_PREFILL = "prompt and single tokens, one method"
_SOURCE = "source length, target tokens"

_VISION = (
    Architecture("ViT", "vision", _BATCH, "patches and attention", vision.vit),
    Architecture("DeiT", "vision", _BATCH, "distillation token, two heads", vision.deit),
    Architecture("BEiT", "vision", _BATCH, "relative position bias by table", vision.beit),
    Architecture("DINOv2", "vision", _BATCH, "bicubic resampling of the position table", vision.dinov2),
    Architecture("ConvNeXt", "vision", _BATCH, "7x7 depthwise, channels-last norms", vision.convnext),
    Architecture("ConvNeXt V2", "vision", _BATCH, "global response norm", vision.convnext_v2),
    Architecture("Swin", "vision", _BATCH, "shifted windows: roll, masks", vision.swin),
    Architecture("SegFormer", "vision", _BATCH, "strided attention, bilinear upsampling", vision.segformer),
    Architecture("MobileViT", "vision", _BATCH, "convolutions around attention, unfolding", vision.mobilevit),
    Architecture("MobileNetV2", "vision", _BATCH, "inverted residuals, uneven padding", vision.mobilenet_v2),
    Architecture(
        "EfficientNet", "vision", _BATCH, "squeeze and excite, pooling by ceiling", vision.efficientnet
    ),
    Architecture("ResNet", "vision", _BATCH, "bottlenecks, batch norm", vision.resnet),
    Architecture("RegNet", "vision", _BATCH, "grouped convolutions", vision.regnet),
    Architecture("YOLOS", "vision", _BATCH, "detection tokens, resampled positions", vision.yolos),
    Architecture("CLIP vision", "vision", _BATCH, "class embedding, projection", vision.clip_vision),
)

_TEXT = (
    Architecture("BERT", "text encoder", _TOKENS, "padding mask, pooler", text.bert, quick=True),
    Architecture("DistilBERT", "text encoder", _TOKENS, "sequence classification", text.distilbert),
    Architecture("RoBERTa", "text encoder", _TOKENS, "positions counted from the tokens", text.roberta),
    Architecture("ALBERT", "text encoder", _TOKENS, "one layer's weights used twice", text.albert),
    Architecture("ELECTRA", "text encoder", _TOKENS, "discriminator head", text.electra),
    Architecture("MPNet", "text encoder", _TOKENS, "relative position buckets", text.mpnet),
    Architecture(
        "DeBERTa-v2", "text encoder", _TOKENS, "disentangled attention: gather, convolution", text.deberta_v2
    ),
    Architecture(
        "ModernBERT", "text encoder", _TOKENS, "rotary, local and global attention", text.modernbert
    ),
    Architecture("MobileBERT", "text encoder", _TOKENS, "bottlenecks, shifted embeddings", text.mobilebert),
    Architecture("SqueezeBERT", "text encoder", _TOKENS, "grouped 1-d convolutions", text.squeezebert),
)

_DECODERS = (
    Architecture("GPT-2", "decoder", _PREFILL, "learned positions", decoders.gpt2),
    Architecture("OPT", "decoder", _PREFILL, "positions given by the caller", decoders.opt),
    Architecture("Llama", "decoder", _PREFILL, "rotary, grouped heads", decoders.llama, quick=True),
    Architecture("Mistral", "decoder", _PREFILL, "grouped heads", decoders.mistral),
    Architecture("Mixtral", "decoder", _PREFILL, "mixture of experts: products of groups", decoders.mixtral),
    Architecture("Qwen3 MoE", "decoder", _PREFILL, "many small experts", decoders.qwen3_moe),
    Architecture("Qwen2", "decoder", _PREFILL, "biased projections", decoders.qwen2),
    Architecture("Qwen3", "decoder", _PREFILL, "normed queries and keys", decoders.qwen3),
    Architecture("Gemma", "decoder", _PREFILL, "scaled embeddings", decoders.gemma),
    Architecture(
        "Gemma 3", "decoder", _PREFILL, "local and global layers, two rotary tables", decoders.gemma3
    ),
    Architecture("Phi", "decoder", _PREFILL, "partial rotary, parallel block", decoders.phi),
    Architecture("Phi-3", "decoder", _PREFILL, "fused projections", decoders.phi3),
    Architecture("GPT-NeoX", "decoder", _PREFILL, "parallel residual", decoders.gpt_neox),
    Architecture("SmolLM3", "decoder", _PREFILL, "layers without rotary", decoders.smollm3),
)

_ENCODER_DECODERS = (
    Architecture("T5", "encoder-decoder", _SOURCE, "relative bias in both halves", encoder_decoders.t5),
    Architecture("BART", "encoder-decoder", _SOURCE, "learned positions", encoder_decoders.bart),
    Architecture("Marian", "encoder-decoder", _SOURCE, "sinusoidal positions", encoder_decoders.marian),
    Architecture(
        "M2M-100", "encoder-decoder", _SOURCE, "positions from the tokens", encoder_decoders.m2m_100
    ),
    Architecture(
        "Whisper", "encoder-decoder", "target tokens", "spectrogram in, tokens out", encoder_decoders.whisper
    ),
)

_SPEECH = (
    Architecture("Wav2Vec2", "speech", "samples", "group norm, weight-normed convolution", speech.wav2vec2),
    Architecture("HuBERT", "speech", "samples", "layer norm in the feature stack", speech.hubert),
    Architecture("WavLM", "speech", "samples", "gated relative positions", speech.wavlm),
    Architecture("Whisper encoder", "speech", _BATCH, "strided 1-d convolutions", speech.whisper_encoder),
    Architecture("AST", "speech", "none", "spectrogram patches", speech.spectrogram_transformer),
)

_MULTIMODAL = (
    Architecture("CLIP", "multimodal", _TOKENS, "two towers, end-of-text pooling", multimodal.clip),
    Architecture("SigLIP", "multimodal", "none", "attention pooling", multimodal.siglip),
    Architecture("VisualBERT", "multimodal", "none", "image features beside tokens", multimodal.visual_bert),
)

ARCHITECTURES: tuple[Architecture, ...] = (
    *_VISION,
    *_TEXT,
    *_DECODERS,
    *_ENCODER_DECODERS,
    *_SPEECH,
    *_MULTIMODAL,
)


def documented() -> str:
    """The list as the table of `docs/reference/models.md`."""
    lines = ["| architecture | kind | dynamic | covers | works |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.name} | {row.kind} | {row.dynamic} | {row.covers} | {row.fails or 'yes'} |"
        for row in ARCHITECTURES
    ]
    return "\n".join(lines) + "\n"

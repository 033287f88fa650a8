"""Encoder-decoders of transformers with random weights: two layers on each side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VOCABULARY = 99
#: Tokens that BART, Marian and Whisper have positions for.
POSITIONS = 96
#: Of Whisper: bands, rows of the encoder, and columns of the spectrogram.
BANDS, ROWS, FRAMES = 8, 50, 100

_BART: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    # Larger than usual, so that logits differ clearly between tokens.
    "init_std": 0.2,
}


def _made(name: str, config_name: str, **settings: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**{"vocab_size": VOCABULARY, **settings})
    return getattr(transformers, name)(config).eval()


def t5(name: str = "T5", **settings: Any) -> Any:
    """Relative positions, no biases; the first token is the one that pads."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "initializer_factor": 2.0}
    ends = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    return _made(f"{name}ForConditionalGeneration", f"{name}Config", **{**sizes, **ends, **settings})


def whisper(**settings: Any) -> Any:
    """A spectrogram of fixed size; only the last token of the vocabulary that pads is special."""
    sizes = {**_BART, "num_mel_bins": BANDS, "max_source_positions": ROWS, "max_target_positions": POSITIONS}
    ends = {"pad_token_id": 98, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    none = {"suppress_tokens": None, "begin_suppress_tokens": None}
    return _made("WhisperForConditionalGeneration", "WhisperConfig", **{**sizes, **ends, **none, **settings})


#: Name → builder. The first two are exported by `make test`, all by `make test-llm`.
FAMILIES: dict[str, Callable[[], Any]] = {
    "t5": t5,
    "whisper": whisper,
    "bart": lambda: _made(
        "BartForConditionalGeneration", "BartConfig", **_BART, max_position_embeddings=POSITIONS
    ),
    "marian": lambda: _made(
        "MarianMTModel",
        "MarianConfig",
        **_BART,
        max_position_embeddings=POSITIONS,
        pad_token_id=98,
        decoder_start_token_id=98,
        eos_token_id=0,
    ),
    # Larger weights would make rounding grow beyond the tolerance: its scores are not scaled.
    "mt5": lambda: t5("MT5", feed_forward_proj="gated-gelu", initializer_factor=1.0),
    "umt5": lambda: t5("UMT5"),
}
QUICK = ("whisper",)


def sources(model: Any, rows: int) -> Any:
    """A source for a model: tokens [1, rows], or a spectrogram."""
    import torch

    chance = torch.Generator().manual_seed(rows)
    if model.main_input_name == "input_ids":
        return torch.randint(3, 90, (1, rows), generator=chance)
    return torch.randn(1, BANDS, FRAMES, generator=chance)

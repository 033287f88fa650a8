"""Encoder-decoders to a program of two methods with one state: `encode` and `forward`.

`encode` runs the encoder and the projections of keys and values of every decoder layer, once for a source;
they are buffers. `forward` is the decoder over these buffers and a cache of its own tokens.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron.llm import export_cross_attention
from pteron.llm.export_attention import recorded_calls
from pteron.llm.export_cache import Buffers
from pteron.llm.export_cross_attention import SourceLayer, StartedLayer, causal_mask, use_bias_tables
from pteron.llm.export_folder import ExportedLanguageModel, constant_methods
from pteron.llm.export_stages import (
    Settings,
    check_positions,
    check_settings,
    copied,
    does_attention_itself,
    write_folder,
)

#: Tokens of the examples that are traced; other numbers than any extent of a small model's weights.
_EXAMPLE, _SOURCE = 3, 7
#: Samples from one column of a spectrogram to the next.
_HOP = 160


class _State(nn.Module):
    """The model, and the buffers that both methods share by name.

    `key_0`, `value_0`, ...: of the decoder's tokens, [batch, heads, max_seq_len, dim]. `source_key_0`,
    `source_value_0`, ...: of the source, [batch, heads, max_source_len, dim]. `source_mask`: 0 for rows of
    the source and -inf behind them, [1, 1, 1, max_source_len]; none where every source fills its rows.
    """

    def __init__(
        self, model: nn.Module, own: Buffers, source: Buffers, mask: Tensor | None, kept: int
    ) -> None:
        super().__init__()
        self.model, self.kept, self.layers = model, kept, len(own)
        for index, (mine, theirs) in enumerate(zip(own, source, strict=True)):
            assert mine is not None
            assert theirs is not None
            names = ("key", "value", "source_key", "source_value")
            for name, buffer in zip(names, (*mine, *theirs), strict=True):
                self.register_buffer(f"{name}_{index}", buffer, persistent=False)
        self.register_buffer("source_mask", mask, persistent=False)

    def pairs(self, prefix: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Keys and values of all layers."""
        for index in range(self.layers):
            yield getattr(self, f"{prefix}key_{index}"), getattr(self, f"{prefix}value_{index}")


class _Encode(_State):
    """`encode(source)`: the last hidden state [batch, rows, width]."""

    def forward(self, source: Tensor) -> Tensor:
        hidden: Tensor = self.model.get_encoder()(source).last_hidden_state  # type: ignore[operator]
        mask = self.source_mask
        is_whole = mask is None
        layers = [SourceLayer(each, is_filled=False, is_whole=is_whole) for each in self.pairs("source_")]
        _projected(self.model, hidden, layers)
        if isinstance(mask, Tensor):
            is_row = torch.arange(mask.shape[-1]) < hidden.shape[1]
            mask.copy_(torch.where(is_row, 0.0, -math.inf)[None, None, None])
        return hidden.float()


class _Decode(_State):
    """`forward(input_ids, cache_position)`: logits, float32 [batch, kept or all, vocabulary]."""

    def forward(self, input_ids: Tensor, cache_position: Tensor) -> Tensor:
        own = list(self.pairs(""))
        length = own[0][0].shape[2]
        source = [SourceLayer(each, is_filled=True) for each in self.pairs("source_")]
        cache = EncoderDecoderCache(
            Cache(layers=[StartedLayer(each, cache_position, length) for each in own]),
            Cache(layers=list(source)),
        )
        cache.is_updated = dict.fromkeys(range(self.layers), True)
        mask = causal_mask(cache_position, length, own[0][0].dtype)
        # Its values are never read: the keys and values that are made of it lie in the buffers.
        hidden = torch.zeros(input_ids.shape[0], source[0].get_max_length(), 1)
        return _logits(self.model, input_ids, hidden, cache, mask, self.source_mask, self.kept)


class _LastRows(nn.Module):
    """The head for the last rows of a call; `kept` 0: for all."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head, self.kept = head, 1

    @property
    def weight(self) -> Tensor:
        """That of the head."""
        weight: Tensor = self.head.weight  # type: ignore[assignment]
        return weight

    def forward(self, hidden: Tensor) -> Any:
        return self.head(hidden[:, -self.kept :] if self.kept else hidden)


def export_encoder_decoder(
    model: Any, folder: str | os.PathLike[str], settings: Settings
) -> ExportedLanguageModel:
    """`pteron.llm.export` of an encoder-decoder; the arguments are described there."""
    max_seq_len, batch_size = settings.max_seq_len, settings.batch_size
    frames = _frames(model)
    rows = _rows_of_source(model, settings.max_source_len, frames)
    check_settings({"max_source_len": rows}, settings.scheme, settings.dtype)
    assert rows is not None
    _check_model(model, max_seq_len)
    with torch.no_grad():
        prepared = _prepared(model, max_seq_len, rows, settings, folder)
        example = _source(prepared, batch_size, frames, min(_SOURCE, rows))
        own, source = _probed(prepared, example, max_seq_len, rows)
        assert own[0] is not None
        mask = None if frames else torch.full((1, 1, 1, rows), -math.inf, dtype=own[0][0].dtype)
        methods = {"forward": _decoder(_Decode(prepared, own, source, mask, 1), batch_size, max_seq_len)}
        if settings.all_logits:
            every = _Decode(prepared, own, source, mask, 0)
            methods["forward_all"] = _decoder(every, batch_size, max_seq_len)
        methods["encode"] = _encoder(_Encode(prepared, own, source, mask, 0), example, rows)
        metadata = _metadata(model, own, max_seq_len, batch_size)
        program = to_edge_transform_and_lower(methods, constant_methods=metadata).to_executorch(
            ExecutorchBackendConfig(
                memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True),
                packed_weights=settings.packed_weights,
            )
        )
    others = [] if frames is None else [("preprocessor_config.json", _spectrogram(prepared, frames))]
    return write_folder(program, model, folder, settings.tokenizer, metadata, others)


def _frames(model: Any) -> int | None:
    """Columns of a spectrogram that the encoder takes, all of them always; None for an encoder of tokens."""
    encoder = model.get_encoder()
    if encoder.main_input_name == "input_ids":
        return None
    if not (hasattr(encoder, "conv1") and hasattr(encoder, "conv2")) or not hasattr(encoder, "num_mel_bins"):
        raise ExportError(
            f"llm.export: the encoder of {type(model).__name__} takes {encoder.main_input_name}; known are "
            "tokens and spectrograms as Whisper has them"
        )
    columns: int = model.config.max_source_positions * encoder.conv1.stride[0] * encoder.conv2.stride[0]
    return columns


def _spectrogram(model: Any, frames: int) -> str:
    """How sounds become spectrograms, as transformers states it; but for bands and length all of Whisper's
    are made alike.
    """
    stated = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": model.get_encoder().num_mel_bins,
        "sampling_rate": 16_000,
        "n_fft": 400,
        "hop_length": _HOP,
        "chunk_length": frames * _HOP // 16_000,
    }
    return json.dumps(stated, indent=2)


def _rows_of_source(model: Any, given: int | None, frames: int | None) -> int | None:
    if frames is None:
        positions = getattr(model.config, "max_position_embeddings", None)
        if isinstance(given, int):
            check_positions(type(model).__name__, positions, given, "max_source_len")
        return given
    rows = int(model.config.max_source_positions)
    if given not in (None, rows):
        raise ExportError(
            f"llm.export: the encoder of {type(model).__name__} always takes {rows} rows",
            argument="max_source_len",
            expected=f"None or {rows}",
            got=str(given),
        )
    return rows


def _check_model(model: Any, max_seq_len: int) -> None:
    name = type(model).__name__
    if model.training:
        raise ExportError(f"llm.export: {name} is in training mode", hint="call model.eval() before")
    if not model.can_generate() or model.get_output_embeddings() is None:
        raise ExportError(f"llm.export: {name} has no head for the next token")
    config = model.config
    own = getattr(config, "max_target_positions", getattr(config, "max_position_embeddings", None))
    check_positions(name, own, max_seq_len)


def _prepared(
    model: Any, max_seq_len: int, rows: int, settings: Settings, folder: str | os.PathLike[str]
) -> Any:
    prepared = copied(model, settings.dtype)
    use_bias_tables(prepared, rows, max_seq_len)
    if settings.scheme is not None:
        from pteron.llm.export_quantised import quantise

        quantise(prepared, settings.scheme, folder)
    try:
        prepared.set_attn_implementation(export_cross_attention.NAME)
    except ValueError as error:
        raise does_attention_itself(prepared) from error
    prepared.set_output_embeddings(_LastRows(prepared.get_output_embeddings()))
    return prepared


def _source(model: Any, batch_size: int, frames: int | None, tokens: int) -> Tensor:
    if frames is None:
        return torch.zeros(batch_size, tokens, dtype=torch.int64)
    return torch.zeros(batch_size, model.get_encoder().num_mel_bins, frames, dtype=model.dtype)


def _projected(model: Any, hidden: Tensor, layers: list[SourceLayer]) -> EncoderDecoderCache:
    """Has the decoder hand its keys and values of the source to `layers`; all else of the call is unused."""
    cache = EncoderDecoderCache(DynamicCache(), Cache(layers=list(layers)))
    ids = torch.zeros(hidden.shape[0], 1, dtype=torch.int64)
    mask = torch.zeros(1, 1, 1, 1, dtype=hidden.dtype)
    _logits(model, ids, hidden, cache, mask, None, 1)
    return cache


def _logits(
    model: Any,
    ids: Tensor,
    hidden: Tensor,
    cache: EncoderDecoderCache,
    mask: Tensor,
    source_mask: Any,
    kept: int,
) -> Tensor:
    model.get_output_embeddings().kept = kept
    outputs = model(
        encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
        attention_mask=source_mask,
        decoder_input_ids=ids,
        decoder_attention_mask=mask,
        past_key_values=cache,
        use_cache=True,
    )
    logits: Tensor = outputs.logits
    return logits.float()


def _probed(model: Any, example: Tensor, max_seq_len: int, rows: int) -> tuple[Buffers, Buffers]:
    """Zeroed buffers of the decoder's tokens and of the source: one call shows the shapes."""
    config = model.config
    count = getattr(config, "decoder_layers", None) or getattr(config, "num_decoder_layers", None)
    layers = [SourceLayer(None, is_filled=False) for _ in range(count or config.num_hidden_layers)]
    with recorded_calls() as calls:
        hidden = model.get_encoder()(example).last_hidden_state
        cache = _projected(model, hidden, layers)
    if len(calls) < 2 * len(layers) + 1 or not all(layer.is_initialized for layer in layers):
        raise does_attention_itself(model)
    own = _zeros(cache.self_attention_cache.layers, max_seq_len)
    return own, _zeros(layers, rows)


def _zeros(layers: Iterable[Any], length: int) -> Buffers:
    """Keys and values as the layers have, with `length` rows."""
    return [
        (
            each.keys.new_zeros(_resized(each.keys, length)),
            each.values.new_zeros(_resized(each.values, length)),
        )
        for each in layers
    ]


def _resized(like: Tensor, length: int) -> tuple[int, ...]:
    return (*like.shape[:2], length, like.shape[3])


def _decoder(module: nn.Module, batch_size: int, max_seq_len: int) -> ExportedProgram:
    tokens = min(_EXAMPLE, max_seq_len)
    example = (torch.zeros(batch_size, tokens, dtype=torch.int64), torch.arange(tokens))
    length = Dim("tokens", min=1, max=max_seq_len)
    shapes = {"input_ids": {1: length}, "cache_position": {0: length}} if max_seq_len > 1 else None
    return torch.export.export(module.eval(), example, dynamic_shapes=shapes, strict=False)


def _encoder(module: nn.Module, example: Tensor, rows: int) -> ExportedProgram:
    is_text = example.dtype == torch.int64
    shapes = {"source": {1: Dim("rows", min=1, max=rows)}} if is_text and rows > 1 else None
    return torch.export.export(module.eval(), (example,), dynamic_shapes=shapes, strict=False)


def _metadata(model: Any, own: Buffers, max_seq_len: int, batch_size: int) -> dict[str, Any]:
    stated = constant_methods(model, own, max_seq_len, batch_size)
    stated["get_n_layers"] = len(own)
    stated["can_rewind"] = True
    for owner in (model.generation_config, model.config):
        start = getattr(owner, "decoder_start_token_id", None)
        if isinstance(start, int):
            return stated | {"decoder_start_token_id": start}
    return stated

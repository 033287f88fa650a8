"""The stages behind `pteron.llm.export`: check, prepare, capture, lower, write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from transformers import AutoConfig, PreTrainedModel

from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron.llm import export_attention
from pteron.llm.export_cache import Buffers, as_int8, cache_over, ring_rows
from pteron.llm.export_encoder_decoder import export_encoder_decoder
from pteron.llm.export_folder import ExportedLanguageModel, constant_methods
from pteron.llm.export_left_out import tell_left_out
from pteron.llm.export_ragged import RowOwners, capture_ragged, sharing
from pteron.llm.export_recurrent import export_recurrent, is_recurrent
from pteron.llm.export_rotary import use_tables
from pteron.llm.export_stages import (
    OTHER_WAY,
    Settings,
    check_positions,
    check_settings,
    copied,
    does_attention_itself,
    opened,
    tokenizer_of,
    write_folder,
)
from pteron.llm.export_vision import attention, positions_of, preprocessor, takes_images, vision_methods

#: Tokens of the example that is traced; another number than any extent of a small model's weights.
_EXAMPLE = 3


#: Names of a layer's buffers.
_PARTS = ("key", "value", "key_factor", "value_factor")


class _WithCache(nn.Module):
    """A model with its cache as buffers, `key_0`, `value_0` and so on; with `key_factor_0` and
    `value_factor_0` where they are int8.

    `kept`: positions that get logits, from the last; 0 for all. `rings`: of the layers, see `ring_rows`.
    """

    def __init__(
        self,
        model: nn.Module,
        buffers: Buffers,
        max_seq_len: int,
        kept: int,
        rings: Sequence[int | None] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.max_seq_len, self.kept, self.rings = model, max_seq_len, kept, rings
        self._has_cache = [each is not None for each in buffers]
        for index, pair in enumerate(buffers):
            for name, buffer in zip(_PARTS, pair or (), strict=False):
                self.register_buffer(f"{name}_{index}", buffer, persistent=False)
        self._parts = _PARTS[: max((len(pair) for pair in buffers if pair is not None), default=0)]

    def forward(self, input_ids: Tensor, cache_position: Tensor) -> Tensor:
        return self.logits({"input_ids": input_ids}, cache_position)

    def logits(
        self,
        given: dict[str, Tensor],
        positions: Tensor,
        kept: int | Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Those behind tokens or their embeddings, by the name of the model's argument.

        `kept`: other positions than those of the module, by number. `rows`: of the cache; None: as positions.
        """
        buffers = [
            tuple(getattr(self, f"{part}_{index}") for part in self._parts) if has_cache else None
            for index, has_cache in enumerate(self._has_cache)
        ]
        cache = cache_over(buffers, positions, self.max_seq_len, rows, self.rings)
        return _logits(self.model, given, positions, cache, self.kept if kept is None else kept)


class _OfEmbeddings(_WithCache):
    """The same with embeddings, float32 [batch, tokens, width], in the place of tokens."""

    def forward(self, inputs_embeds: Tensor, cache_position: Tensor) -> Tensor:
        dtype: torch.dtype = self.model.dtype  # type: ignore[assignment]
        return self.logits({"inputs_embeds": inputs_embeds.to(dtype)}, cache_position)


class _Ragged(_WithCache):
    """`forward_ragged`, see `pteron.llm.export_ragged`."""

    def __init__(self, model: nn.Module, buffers: Buffers, max_seq_len: int) -> None:
        super().__init__(model, buffers, max_seq_len, 1)
        self.owners = RowOwners(max_seq_len)

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, cache_position: Tensor, cache_row: Tensor, sequence: Tensor, last: Tensor
    ) -> Tensor:
        with sharing(self.owners.write(cache_row, cache_position, sequence)):
            return self.logits({"input_ids": input_ids}, cache_position, last, cache_row)


def export_model(model: Any, folder: str | os.PathLike[str], settings: Settings) -> ExportedLanguageModel:
    """`pteron.llm.export`; the arguments are described there."""
    max_seq_len, batch_size = settings.max_seq_len, settings.batch_size
    lengths: dict[str, int | None] = {"max_seq_len": max_seq_len, "batch_size": batch_size}
    if settings.max_chunk is not None:
        lengths["max_chunk"] = settings.max_chunk
    check_settings(lengths, settings.scheme, settings.dtype, settings.cache)
    # The class of a folder's model may be one for text, whose configuration says nothing of images.
    config = AutoConfig.from_pretrained(model) if isinstance(model, (str, os.PathLike)) else None
    if isinstance(model, (str, os.PathLike)):
        settings = replace(settings, tokenizer=tokenizer_of(Path(model), settings.tokenizer))
        model = opened(model, settings.dtype)
    is_other = isinstance(model, PreTrainedModel) and (model.config.is_encoder_decoder or is_recurrent(model))
    if settings.ragged and (is_other or batch_size != 1):
        raise ValueError(
            "llm.export(ragged=True): for decoders with batch_size 1, whose sequences share a cache"
        )
    if settings.cache is not None and is_other:
        raise ValueError("llm.export(cache=...): for decoders with a cache of keys and values alone")
    if settings.max_chunk is not None and (is_other or settings.ragged):
        raise ValueError("llm.export(max_chunk=...): for decoders whose layers have caches of their own")
    if isinstance(model, PreTrainedModel) and model.config.is_encoder_decoder:
        return export_encoder_decoder(model, folder, settings)
    if settings.max_source_len is not None:
        raise ValueError("llm.export(max_source_len=...): only an encoder-decoder has a source")
    if isinstance(model, PreTrainedModel) and is_recurrent(model):
        return export_recurrent(model, folder, settings)
    _check_model(model, max_seq_len)
    tell_left_out(config or model.config, settings.tokenizer)
    with torch.no_grad():
        prepared = _prepared(model, max_seq_len, settings.dtype)
        most = min(max_seq_len, settings.max_chunk or max_seq_len)
        if settings.cache is not None and prepared.dtype != torch.float32:
            raise ExportError(
                f"llm.export(cache={settings.cache!r}): the model computes in {prepared.dtype}",
                hint='give dtype="float32"; a scheme makes its weights small',
            )
        rings = ring_rows(model.config, max_seq_len, settings.max_chunk)
        buffers = _probed(prepared, batch_size, max_seq_len, rings)
        if settings.cache == "int8":
            buffers = as_int8(buffers)
        if settings.scheme is not None:
            from pteron.llm.export_quantised import quantise

            # Behind the call, which would make floats of all weights again.
            quantise(prepared, settings.scheme, folder)
        ids = torch.zeros(batch_size, min(_EXAMPLE, most), dtype=torch.int64)
        last = _WithCache(prepared, buffers, max_seq_len, 1, rings)
        methods = {"forward": _captured(last, ids, most)}
        if settings.all_logits:
            every = _WithCache(prepared, buffers, max_seq_len, 0, rings)
            methods["forward_all"] = _captured(every, ids, most)
        if settings.ragged:
            methods["forward_ragged"] = capture_ragged(_Ragged(prepared, buffers, max_seq_len), max_seq_len)
        others = []
        if takes_images(model):
            positions = positions_of(model, prepared.dtype)
            methods |= vision_methods(prepared, positions, batch_size, max_seq_len)
            decoder = _OfEmbeddings(prepared, buffers, max_seq_len, 1, rings)
            example = torch.zeros(*ids.shape, prepared.get_input_embeddings().embedding_dim)
            methods["text_decoder"] = _captured(decoder, example, most)
            others.append(preprocessor(model, settings.tokenizer))
        metadata = constant_methods(model, buffers, max_seq_len, batch_size) | {"get_max_seq_len": most}
        program = to_edge_transform_and_lower(methods, constant_methods=metadata).to_executorch(
            ExecutorchBackendConfig(
                memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=len(methods) > 1),
                packed_weights=settings.packed_weights,
            )
        )
    return write_folder(program, model, folder, settings.tokenizer, metadata, others)


def _check_model(model: Any, max_seq_len: int) -> None:
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"llm.export: expected a model of transformers, got {type(model).__name__}")
    name = type(model).__name__
    if model.training:
        raise ExportError(f"llm.export: {name} is in training mode", hint="call model.eval() before")
    if not model.can_generate():
        raise ExportError(
            f"llm.export: {name} is no decoder-only model with a head for the next token",
            hint=OTHER_WAY,
        )
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if model._is_stateful or kinds:
        raise ExportError(
            f"llm.export: {name} keeps states of recurrences or convolutions beside keys and values"
            + (f" (layers {sorted(kinds)})" if kinds else ""),
            hint=OTHER_WAY,
        )
    check_positions(name, getattr(config, "max_position_embeddings", None), max_seq_len)


def _prepared(model: Any, max_seq_len: int, dtype: str | None) -> Any:
    prepared = copied(model, dtype)
    try:
        prepared.set_attn_implementation(attention(model))
    except ValueError as error:
        raise does_attention_itself(prepared) from error
    use_tables(prepared, max_seq_len)
    return prepared


def _probed(model: Any, batch_size: int, max_seq_len: int, rings: Sequence[int | None]) -> Buffers:
    """The zeroed cache of every layer: one token shows the shapes, and fills the rotary tables."""
    layers = model.config.get_text_config().num_hidden_layers
    ids = torch.zeros(batch_size, 1, dtype=torch.int64)
    with export_attention.recorded_calls() as calls:
        first = torch.zeros(1, dtype=torch.int64)
        cache: Any = cache_over([None] * layers, first, max_seq_len, rings=rings)
        _logits(model, {"input_ids": ids}, first, cache, 1)
    found = [(layer.keys, layer.values) if layer.is_initialized else None for layer in cache.layers]
    if not any(found) or len(calls) < sum(each is not None for each in found):
        raise does_attention_itself(model)
    return [each and (torch.zeros_like(each[0]), torch.zeros_like(each[1])) for each in found]


def _logits(
    model: Any, given: dict[str, Tensor], positions: Tensor, cache: Any, kept: int | Tensor
) -> Tensor:
    outputs = model(
        **given,
        position_ids=positions[None],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=kept,
    )
    logits: Tensor = outputs.logits
    return logits.float()


def _captured(module: nn.Module, example: Tensor, most: int) -> ExportedProgram:
    """The program of a module that takes `example`, tokens or embeddings [batch, tokens, ...], and their
    positions, for 1 to `most` tokens.
    """
    length = Dim("tokens", min=1, max=most)
    name = "input_ids" if example.dtype == torch.int64 else "inputs_embeds"
    shapes = {name: {1: length}, "cache_position": {0: length}} if most > 1 else None
    given = (example, torch.arange(example.shape[1]))
    return torch.export.export(module.eval(), given, dynamic_shapes=shapes, strict=False)

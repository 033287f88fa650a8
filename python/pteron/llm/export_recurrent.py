"""State-space models to a program of one token a call, with the states of their layers as buffers.

A state is a sum over all tokens so far: it takes the same memory for any length, and cannot go back.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MambaConfig
from transformers.cache_utils import DynamicCache

from pteron.errors import ExportError
from pteron.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from pteron.llm.export_folder import ExportedLanguageModel, constant_methods
from pteron.llm.export_stages import Settings, copied, write_folder

#: States of a layer: the last inputs of its convolution, and that of its recurrence.
_States = list[tuple[Tensor, Tensor]]


class _LayerStates:
    """Stands for transformers' cache: the mixers write into these tensors."""

    def __init__(self, states: _States) -> None:
        self.states = states

    def get_conv_state(self, layer: int, state_idx: int = 0) -> Tensor:
        """[batch, channels, width of the convolution]."""
        del state_idx
        return self.states[layer][0]

    def get_recurrent_state(self, layer: int, state_idx: int = 0) -> Tensor:
        """[batch, channels, states]."""
        del state_idx
        return self.states[layer][1]

    def is_recording_past(self, _layer: int) -> bool:
        """Earlier states are not kept."""
        return False


class _WithStates(nn.Module):
    """A model with its states as buffers, `conv_0`, `recurrent_0` and so on."""

    def __init__(self, model: nn.Module, states: _States) -> None:
        super().__init__()
        self.model, self.layers = model, len(states)
        for index, (convolution, recurrence) in enumerate(states):
            self.register_buffer(f"conv_{index}", convolution, persistent=False)
            self.register_buffer(f"recurrent_{index}", recurrence, persistent=False)

    def forward(self, input_ids: Tensor, cache_position: Tensor) -> Tensor:
        del cache_position  # The state knows; callers of other language models give it.
        states = [
            (getattr(self, f"conv_{index}"), getattr(self, f"recurrent_{index}"))
            for index in range(self.layers)
        ]
        outputs = self.model(input_ids=input_ids, cache_params=_LayerStates(states), use_cache=True)
        logits: Tensor = outputs.logits
        return logits.float()


def is_recurrent(model: Any) -> bool:
    """Is it a family that is known here?"""
    return isinstance(model.config, MambaConfig)


def export_recurrent(model: Any, folder: str | os.PathLike[str], settings: Settings) -> ExportedLanguageModel:
    """`pteron.llm.export` of a Mamba; the arguments are described there."""
    name = type(model).__name__
    if model.training:
        raise ExportError(f"llm.export: {name} is in training mode", hint="call model.eval() before")
    if model.get_output_embeddings() is None:
        raise ExportError(f"llm.export: {name} has no head for the next token")
    if settings.all_logits:
        raise ExportError(
            f"llm.export(all_logits=True): {name} takes one token in a call, and its state cannot go back"
        )
    with torch.no_grad():
        prepared = copied(model, settings.dtype)
        if settings.scheme is not None:
            from pteron.llm.export_quantised import quantise

            quantise(prepared, settings.scheme, folder)
        ids = torch.zeros(settings.batch_size, 1, dtype=torch.int64)
        states = _probed(prepared, ids)
        example = (ids, torch.zeros(1, dtype=torch.int64))
        captured = torch.export.export(_WithStates(prepared, states).eval(), example, strict=False)
        metadata = constant_methods(model, states, settings.max_seq_len, settings.batch_size)
        metadata |= {"enable_dynamic_shape": False, "can_rewind": False}
        program = to_edge_transform_and_lower(captured, constant_methods=metadata).to_executorch(
            ExecutorchBackendConfig(packed_weights=settings.packed_weights)
        )
    return write_folder(program, model, folder, settings.tokenizer, metadata)


def _probed(model: Any, ids: Tensor) -> _States:
    """Zeros of the shapes that a call shows."""
    cache: Any = DynamicCache(config=model.config)
    model(input_ids=ids, cache_params=cache, use_cache=True)
    return [
        (torch.zeros_like(layer.conv_states[0]), torch.zeros_like(layer.recurrent_states[0]))
        for layer in cache.layers
    ]

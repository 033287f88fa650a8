"""Rotary embeddings from tables: sines and cosines of all positions are constants, rows are looked up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pteron.errors import ExportError


class RotaryTable(nn.Module):
    """Stands for a rotary module of transformers: `(x, position_ids [1, tokens], ...)` to (cos, sin).

    The first call with some further arguments (types of layers) makes their tables, [max_seq_len, dim].
    """

    def __init__(self, rotary: nn.Module, max_seq_len: int) -> None:
        super().__init__()
        self._rotary = (rotary,)  # Not a child: its buffers are not the program's.
        self.max_seq_len = max_seq_len
        self._names: dict[str, tuple[str, str]] = {}

    def forward(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        names = self._names.get(repr((args, kwargs)))
        if names is None:
            names = self._add(x, *args, **kwargs)
        cos, sin = (nn.functional.embedding(position_ids, getattr(self, name)) for name in names)
        return cos, sin

    def _add(self, x: Tensor, *args: Any, **kwargs: Any) -> tuple[str, str]:
        every = torch.arange(self.max_seq_len)[None]
        tables = self._rotary[0](x, every, *args, **kwargs)
        number = len(self._names)
        names = (f"cos_{number}", f"sin_{number}")
        for name, table in zip(names, tables, strict=True):
            self.register_buffer(name, table[0].clone(), persistent=False)
        self._names[repr((args, kwargs))] = names
        return names


def use_tables(model: nn.Module, max_seq_len: int) -> None:
    """Replace the rotary modules of `model`.

    ExportError for angles that depend on the length of the whole sequence.
    """
    for name, module in list(model.named_modules()):
        if not type(module).__name__.endswith("RotaryEmbedding"):
            continue
        trained = getattr(module, "original_max_seq_len", max_seq_len)
        if "dynamic" in str(getattr(module, "rope_type", "")) and max_seq_len > trained:
            raise ExportError(
                "llm.export: rotary embeddings of type 'dynamic' change with the length of the text",
                argument="max_seq_len",
                expected=f"at most {trained}",
                got=str(max_seq_len),
            )
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, RotaryTable(module, max_seq_len))

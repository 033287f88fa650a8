"""Quantised weights of a language model. A table that embeddings and the head share stays one."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pteron.errors import ExportError
from pteron.llm.mapped_rows import MappedRows, mapped_rows
from pteron.quant.group_scales import groups_of_4_bits, widen_scales
from pteron.quant.torchao_parts import torchao

#: Columns that share a scale at 4 bits.
_GROUP = 32
#: Elements that are quantised at a time: several float32 copies of as many stand beside the weight.
_AT_ONCE = 1 << 18


#: Tables of positions that models index, and weights that they multiply by, themselves.
_OWN = ("embed_positions", "relative_attention_bias", "dt_proj")


def quantise(model: Any, scheme: str, folder: str | os.PathLike[str]) -> None:
    """Quantise weights of linear layers and embeddings of `model`, which may have no head, but for `_OWN`.

    They lie in files without a name beside `folder`, where the program will be: nothing of the size of the
    weights is in memory. ExportError where a weight is not float32.
    """
    place = next(
        path for path in (Path(folder).absolute(), *Path(folder).absolute().parents) if path.is_dir()
    )
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    is_tied = head is not None and head.weight is table.weight
    shared = table.weight
    for name, module in list(model.named_modules()):
        if not isinstance(module, (nn.Linear, nn.Embedding)) or name.endswith(_OWN):
            continue
        if module.weight.dtype != torch.float32:
            raise ExportError(
                f"llm.export(scheme={scheme!r}): the weight of {name} is {module.weight.dtype}",
                hint='give dtype="float32"',
            )
        if not module.weight.numel():
            # Nothing to quantise, and torchao has no scale for nothing.
            continue
        is_rows = is_tied and module is head
        if is_rows and table.weight is not shared:
            # The table as it was quantised: the head takes the same scheme, by rows.
            module.weight = _of_8_bit_inputs(table.weight) if scheme.endswith("dynamic") else table.weight
            continue
        _apply(module, _config(scheme, module, is_rows), place)


def _of_8_bit_inputs(weight: Any) -> nn.Parameter:
    """The same numbers as the weight of a linear layer whose inputs are quantised."""
    inner = {name: getattr(weight, name) for name in weight.tensor_data_names}
    attributes = {name: getattr(weight, name) for name in weight.tensor_attribute_names}
    attributes["activation_quantization"] = "int8_asym_per_token"
    return nn.Parameter(type(weight)(**inner, **attributes), requires_grad=False)


def _config(scheme: str, module: nn.Linear | nn.Embedding, is_rows: bool) -> Any:
    ao = torchao("quantization")
    if scheme == "int8-dynamic" and isinstance(module, nn.Linear) and not is_rows:
        return ao.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int8, weight_granularity=ao.PerAxis(0)
        )
    is_divided = module.weight.shape[1] % _GROUP == 0
    is_in_groups = isinstance(module, nn.Linear) and is_divided and not is_rows
    if is_in_groups and scheme in ("int4-weight", "int4-dynamic"):
        return groups_of_4_bits(_GROUP, is_dynamic=scheme == "int4-dynamic")
    return ao.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=ao.PerAxis(0))


def _apply(layer: nn.Linear | nn.Embedding, config: Any, folder: Path) -> None:
    """Scales are of rows or parts of them, so that blocks of rows give what the whole gives."""
    weight = layer.weight
    rows = max(1, _AT_ONCE // weight.shape[1])
    with mapped_rows(folder) as parts, _no_collections():
        for at in range(0, len(weight), rows):
            block = _quantised(weight[at : at + rows], config)
            for name in block.tensor_data_names:
                parts.setdefault(name, MappedRows(folder)).add(getattr(block, name))
            kind = type(block)
            attributes = {name: getattr(block, name) for name in block.tensor_attribute_names}
            # torchao leaves blocks in circles of references, which would wait for a collection of everything.
            del block
            gc.collect(0)
            _trim_heap()
        inner = {name: part.tensor() for name, part in parts.items()}
    layer.weight = nn.Parameter(kind(**inner, **attributes), requires_grad=False)


def _trim_heap() -> None:
    """Gives free pages in the midst of the heap back to the system.

    glibc seldom uses the hole of an aligned block for the next one of its size: without this, about one
    process in three keeps a copy of all weights in holes.
    """
    if os.name == "posix" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Python collects nothing by itself meanwhile.

    A collection that comes while a block is in use makes it old, and old circles wait for one of everything.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _quantised(weight: torch.Tensor, config: Any) -> Any:
    """The quantised tensor that torchao makes of the weight of a linear layer."""
    layer = nn.Linear(1, 1, bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    torchao("quantization").quantize_(layer, config, filter_fn=lambda module, _name: module is layer)
    widen_scales(layer.weight)
    return layer.weight

"""Models of `tests/models` in a package of `python/packages`: lowered, run, compared with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

import pteron
from pteron.exir import EdgeProgramManager, to_edge, to_edge_transform_and_lower
from pteron.exir.backend.partitioner import DelegationSpec
from tests.models.transformers_zoo import ARCHITECTURES
from tests.models.zoo_model import Architecture, Model

#: Images, text, speech, decoders with state, an encoder-decoder with two methods, two towers.
NAMES = (
    *("ViT", "DINOv2", "ConvNeXt", "SegFormer", "MobileNetV2", "ResNet", "ModernBERT", "BERT", "RoBERTa"),
    *("GPT-2", "Llama", "T5", "Whisper encoder", "Wav2Vec2", "CLIP"),
)
ROWS: dict[str, Architecture] = {row.name: row for row in ARCHITECTURES if row.name in NAMES}

How = Literal["whole", "in parts"]


def built(name: str) -> Model:
    """The model, with the same weights at every call."""
    torch.manual_seed(0)
    return ROWS[name].build()


def lowered(model: Model, how: How, backend: str, partitioner: Callable[[], Any]) -> EdgeProgramManager:
    """Everything to the backend, or what its partitioner takes."""
    captured = {
        name: torch.export.export(
            method.module, (), dict(method.example), dynamic_shapes=method.dynamic, **method.options
        )
        for name, method in model.methods.items()
    }
    if how == "whole":
        return to_edge(captured).to_backend(DelegationSpec(backend, []))
    return to_edge_transform_and_lower(captured, partitioner=[partitioner()])


def differences(program: pteron.Program, model: Model) -> Iterator[float]:
    """For each call the largest difference to eager PyTorch, relative to the largest number of a result."""
    methods = {name: program.load_method(name) for name in model.methods}
    for (name, given), wanted in zip(model.calls, _expected(model), strict=True):
        got = _tensors(methods[name](**given))[: len(wanted)]
        assert [value.shape for value in got] == [value.shape for value in wanted]
        yield max(_difference(g, w) for g, w in zip(got, wanted, strict=True))


def _expected(model: Model) -> list[list[Tensor]]:
    """The main result alone where the model says how it is got without its state."""
    if model.expected is not None:
        return [[tensor] for tensor in model.expected]
    with torch.no_grad():
        return [_tensors(model.methods[name].module(**given)) for name, given in model.calls]


def _tensors(result: Any) -> list[Tensor]:
    return [leaf.clone() for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def _difference(got: Tensor, wanted: Tensor) -> float:
    got, wanted = got.double(), wanted.double()
    off = torch.where(got == wanted, 0.0, (got - wanted).abs())
    return float(off.max() / wanted[wanted.isfinite()].abs().max())

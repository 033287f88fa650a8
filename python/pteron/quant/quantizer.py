"""`PteronQuantizer`: says to PT2E which operators of a model get integers, and of which kind."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node

from pteron.quant.fold_padding import fold_padding
from pteron.quant.integer_regions import (
    CAT,
    CHOOSES,
    CLAMPS,
    CONVOLUTIONS,
    LINEAR,
    Region,
    integer_regions,
    moves_behind,
)
from pteron.quant.torchao_parts import torchao

if TYPE_CHECKING:
    Base = object
else:
    Base = torchao("quantization.pt2e.quantizer").Quantizer

_ANNOTATION = "quantization_annotation"
#: Scales are at least this, so that quantising what is always 0 stays finite: what XNNPACK's quantizer takes.
_LEAST_SCALE = 2.0**-12


class PteronQuantizer(Base):
    """The quantizer of PT2E for this package's runtime.

    ::

        prepared = prepare_pt2e(torch.export.export(model, inputs).module(), PteronQuantizer())
        for batch in calibration:
            prepared(*batch)
        program = torch.export.export(convert_pt2e(prepared), inputs)

    Integers get: convolutions (1-d, 2-d) and linear layers, with batch norm and relu; products of two
    activations (attention that is written with `matmul`); sums, products, concatenation, pooling and
    activations that stand between those. Concatenation and max pooling have one scale for all that they
    read and write, and so has what only moves elements. Zeros around an image become the padding of the
    convolutions that read it, where both sides have as many. Weights are int8 from -127 to 127,
    symmetric, with a scale for each output channel; activations int8 from -128 to 127 with a scale and a
    zero point for each tensor; biases stay float32. A result is quantised only where an operator with
    integers reads it: norms, softmax and the model's outputs read floats. Left in float, too: recurrent
    layers, `scaled_dot_product_attention`, transposed and 3-d convolutions.

    Args:
        per_channel: a scale for each output channel of a weight; False: one for the weight.
        is_dynamic: scales of activations from the values of each call, for linear layers alone; needs no
            calibration.
        is_qat: fake quantisation, for `prepare_qat_pt2e`.
        leave: names of modules (`"features.0"`) left in float, with all below them.

    Raises:
        ImportError: torchao is not installed.
        ValueError: `is_dynamic` with `is_qat`, or names in `leave` that the model does not have (raised by
            `annotate`).
    """

    def __init__(
        self,
        *,
        per_channel: bool = True,
        is_dynamic: bool = False,
        is_qat: bool = False,
        leave: Collection[str] = (),
    ) -> None:
        if is_dynamic and is_qat:
            raise ValueError(
                "PteronQuantizer: is_qat trains static scales; expected is_dynamic=False with it"
            )
        super().__init__()
        self._is_dynamic = is_dynamic
        self._leave = frozenset(leave)
        self._activation = _activation_spec(is_dynamic, is_qat)
        self._weight = _weight_spec(per_channel, is_qat)

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Zeros around images become the padding of convolutions, in place; before `annotate`."""
        fold_padding(model.graph)
        model.recompile()
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate the nodes of a captured graph, in place. `prepare_pt2e` calls this."""
        self._check_names(model)
        for region in integer_regions(model.graph, self._is_wanted):
            self._annotate(region)
        return model

    def validate(self, model: GraphModule) -> None:
        """Every annotation is allowed; nothing is checked."""

    def _is_wanted(self, node: Node) -> bool:
        if self._is_dynamic and node.target is not LINEAR:
            return False
        return not any(_is_in(module_name(node), name) for name in self._leave)

    def _check_names(self, model: GraphModule) -> None:
        names = {module_name(node) for node in model.graph.nodes}
        unknown = sorted(each for each in self._leave if not any(_is_in(name, each) for name in names))
        if unknown:
            raise ValueError(f"PteronQuantizer: leave={unknown} are no modules with operators of this model")

    def _annotate(self, region: Region) -> None:
        parts = torchao("quantization.pt2e.quantizer")
        node = region.node
        specs: dict[Node, Any] = dict.fromkeys(region.inputs, self._activation)
        output: Any = self._activation if region.is_output_read and not self._is_dynamic else None
        if node.target in CONVOLUTIONS or node.target is LINEAR:
            weight = node.args[1]
            assert isinstance(weight, Node)  # what makes it a region
            specs[weight] = self._weight
        elif node.target is CAT or node.target in CHOOSES | CLAMPS:
            first = region.inputs[0]
            shared = parts.SharedQuantizationSpec((first, node))
            specs = {each: self._activation if each is first else shared for each in region.inputs}
            output = shared if output is not None and node.target not in CLAMPS else output
        annotate = parts.QuantizationAnnotation
        if region.last is node:
            node.meta[_ANNOTATION] = annotate(input_qspec_map=specs, output_qspec=output, _annotated=True)
        else:
            node.meta[_ANNOTATION] = annotate(input_qspec_map=specs, _annotated=True)
            between = next(iter(node.users))
            between.meta[_ANNOTATION] = annotate(_annotated=True)
            region.last.meta[_ANNOTATION] = annotate(output_qspec=output, _annotated=True)
        if output is not None:
            for move in moves_behind(region.last):
                before = move.args[0]
                assert isinstance(before, Node)  # moves have one tensor
                share = parts.SharedQuantizationSpec(region.last)
                move.meta[_ANNOTATION] = annotate(
                    input_qspec_map={before: share}, output_qspec=share, _annotated=True
                )


def module_name(node: Node) -> str:
    """The module of the model that a node comes from, as `named_modules` calls it."""
    stack = node.meta.get("nn_module_stack") or {}
    name = next(reversed(stack.values()))[0] if stack else ""
    return str(name).removeprefix("L['self']").lstrip(".")


def _is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _activation_spec(is_dynamic: bool, is_qat: bool) -> Any:
    pt2e = torchao("quantization.pt2e")
    settings: dict[str, Any] = {"eps": _LEAST_SCALE}
    if is_dynamic:
        observer = pt2e.PlaceholderObserver.with_args(**settings)
    elif is_qat:
        observer = pt2e.FusedMovingAvgObsFakeQuantize.with_args(
            observer=pt2e.MovingAverageMinMaxObserver, **settings
        )
    else:
        observer = pt2e.HistogramObserver.with_args(**settings)
    return torchao("quantization.pt2e.quantizer").QuantizationSpec(
        dtype=torch.int8,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_tensor_affine,
        is_dynamic=is_dynamic,
        observer_or_fake_quant_ctr=observer,
    )


def _weight_spec(per_channel: bool, is_qat: bool) -> Any:
    pt2e = torchao("quantization.pt2e")
    settings: dict[str, Any] = {"eps": _LEAST_SCALE}
    if is_qat:
        kind = "MovingAveragePerChannelMinMaxObserver" if per_channel else "MovingAverageMinMaxObserver"
        observer = pt2e.FusedMovingAvgObsFakeQuantize.with_args(observer=getattr(pt2e, kind), **settings)
    else:
        kind = "PerChannelMinMaxObserver" if per_channel else "MinMaxObserver"
        observer = getattr(pt2e, kind).with_args(**settings)
    return torchao("quantization.pt2e.quantizer").QuantizationSpec(
        dtype=torch.int8,
        quant_min=-127,
        quant_max=127,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric,
        ch_axis=0 if per_channel else None,
        is_dynamic=False,
        observer_or_fake_quant_ctr=observer,
    )

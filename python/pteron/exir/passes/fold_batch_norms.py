"""Fold batch norms into the convolutions and linear layers that they follow."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

from pteron.exir.edge.debug_handles import stand_for
from pteron.exir.edge.edge_op_overload import edge_op_by_name
from pteron.exir.passes.constant_values import add_constants, constant_values, remove_unread_constants
from pteron.exir.passes.exported_program_pass import in_place_pass

_CONVOLUTION = edge_op_by_name("aten", "convolution", "default")
_ADDMM = edge_op_by_name("aten", "addmm", "default")
_MM = edge_op_by_name("aten", "mm", "default")
_BATCH_NORM = edge_op_by_name("aten", "_native_batch_norm_legit_no_training", "default")
_DTYPES = (torch.float32, torch.float64)
# Elements that are computed at a time: few enough that PyTorch does not wake its threads for them.
_PART = 1 << 15

Constants = Mapping[torch.fx.Node, torch.Tensor]


@dataclass(frozen=True)
class _Affine:
    """What a batch norm computes per channel: `scale * x + shift`, in float64."""

    scale: torch.Tensor
    shift: torch.Tensor


@in_place_pass
def fold_batch_norms(program: ExportedProgram) -> bool:
    """Scale the weights of a layer instead of its result, in place.

    Before: `y = batch_norm(convolution(x, w, b), gamma, beta, mean, var)`. After: `y = convolution(x, w2,
    b2)` with `w2 = w * gamma / sqrt(var + eps)` per output channel. Convolutions of any rank, grouped,
    dilated or transposed, with or without bias, and linear layers (`addmm`, `mm`) whose weight is a constant.
    The new weights are computed in float64 and rounded once, so results differ from eager mode in the last
    bits.

    Not folded: a layer whose result or weight somebody else reads too, statistics that the run changes, half
    precision.
    """
    constants = constant_values(program)
    replaced: list[tuple[torch.fx.Node, torch.Tensor, torch.Tensor, torch.fx.Node]] = []
    for node in list(program.graph_module.graph.nodes):
        if node.op == "call_function" and node.target is _BATCH_NORM:
            layer = node.args[0]
            new = _folded(node, layer, constants) if isinstance(layer, torch.fx.Node) else None
            if new is not None:
                replaced.append((layer, *new, node))
    if not replaced:
        return False
    wanted = [(value, layer) for layer, weight, bias, _ in replaced for value in (weight, bias)]
    added = iter(add_constants(program, wanted))
    for layer, _, _, norm in replaced:
        _replace(layer, norm, next(added), next(added))
    remove_unread_constants(program, set(constants))
    program.graph_module.recompile()
    return True


def _folded(
    norm: torch.fx.Node, layer: torch.fx.Node, constants: Constants
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Weight and bias of `layer` with `norm` in them; None where it cannot be folded."""
    if layer.op != "call_function" or len(layer.users) != 1 or layer.kwargs or norm.kwargs:
        return None
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in norm.users):
        return None
    parts = _weight_and_bias(layer)
    affine = _affine(norm, constants)
    if parts is None or affine is None:
        return None
    weight, bias = (constants.get(part) if part is not None else None for part in parts)
    if weight is None or weight.dtype not in _DTYPES or len(parts[0].users) != 1:
        return None
    if parts[1] is not None and (bias is None or bias.dtype != weight.dtype):
        return None
    with torch.no_grad():
        scaled = _scaled(weight, _along_channels(layer, weight, affine.scale))
        shifted = affine.shift if bias is None else bias.double() * affine.scale + affine.shift
        return scaled, shifted.to(weight.dtype)


def _weight_and_bias(layer: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node | None] | None:
    """The nodes of both; None where `layer` is no convolution or linear layer, or its bias is no vector."""
    args: Any = layer.args
    found: tuple[Any, Any]
    if layer.target is _CONVOLUTION:
        found = (args[1], args[2])
    elif layer.target is _ADDMM:
        found = (args[2], args[0])
        if tuple(found[1].meta["val"].shape) != (layer.meta["val"].shape[1],):
            return None
    elif layer.target is _MM:
        found = (args[1], None)
    else:
        return None
    return found if isinstance(found[0], torch.fx.Node) else None


def _affine(norm: torch.fx.Node, constants: Constants) -> _Affine | None:
    _, gamma, beta, mean, variance, _, epsilon = norm.args
    for given in (gamma, beta, mean, variance):
        if given is not None and given not in constants:
            return None
    values = [None if given is None else constants[given].detach().double() for given in norm.args[1:5]]  # type: ignore[index]
    weight, bias, center, spread = values
    if center is None or spread is None:
        return None
    assert isinstance(epsilon, float)
    scale = torch.rsqrt(spread + epsilon)
    if weight is not None:
        scale = scale * weight
    shift = -center * scale
    if bias is not None:
        shift = shift + bias
    return _Affine(scale, shift) if bool(torch.isfinite(scale).all()) else None


def _along_channels(layer: torch.fx.Node, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`scale` in a shape that broadcasts to the output channels of `weight`."""
    if layer.target is not _CONVOLUTION:
        # K x N
        return scale
    trailing = [1] * (weight.dim() - 2)
    is_transposed, groups = bool(layer.args[6]), layer.args[8]
    assert isinstance(groups, int)
    if not is_transposed:
        return scale.reshape(-1, 1, *trailing)
    # Input channels x output channels of one group: each group has output channels of its own.
    per_group = scale.reshape(groups, 1, -1).expand(groups, weight.shape[0] // groups, -1)
    return per_group.reshape(weight.shape[0], -1, *trailing)


def _scaled(weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`weight * scale`, computed in float64, with the dtype and the memory order of `weight`."""
    result = torch.empty_like(weight, requires_grad=False)
    # A part at a time: float64 copies of a whole weight are slow to get memory for.
    rows = max(1, _PART * weight.shape[0] // max(1, weight.numel()))
    for start in range(0, weight.shape[0], rows):
        part = slice(start, start + rows)
        own = scale[part] if scale.dim() == weight.dim() and scale.shape[0] != 1 else scale
        result[part] = weight[part].double() * own
    return result


def _replace(layer: torch.fx.Node, norm: torch.fx.Node, weight: torch.fx.Node, bias: torch.fx.Node) -> None:
    if layer.target is _CONVOLUTION:
        layer.args = (layer.args[0], weight, bias, *layer.args[3:])
    else:
        features = layer.args[1] if layer.target is _ADDMM else layer.args[0]
        layer.target = _ADDMM
        layer.args = (bias, features, weight)
    results = list(norm.users)
    # The layer now computes what the norm did: same shape, perhaps another memory order.
    layer.meta["val"] = norm.meta["val"][0]
    stand_for(layer, norm)
    for result in results:
        result.replace_all_uses_with(layer)
        layer.graph.erase_node(result)
    layer.graph.erase_node(norm)

"""Drop a quantisation that gives back what was dequantised."""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.passes.effects import may_share_memory, written_nodes
from pteron.exir.passes.exported_program_pass import each_graph_with

_PAIRS = {
    f"quantized_decomposed.quantize_{scheme}": f"quantized_decomposed.dequantize_{scheme}"
    for scheme in ("per_tensor.default", "per_channel.default")
}
# Their every value survives the way through float32; of int32 the larger ones do not.
_EXACT = (torch.int8, torch.uint8, torch.int16)
# The reciprocal of a smaller scale is no normal float32.
_SMALLEST_SCALE = 1e-37


@each_graph_with(written_nodes)
def remove_requantization(module: torch.fx.GraphModule, written: set[torch.fx.Node]) -> bool:
    """Let the readers of `quantize(dequantize(q, scale, ...), scale, ...)` read `q`, in place.

    Before: `quantize(dequantize(q, s, z, -128, 127, int8), s, z, -128, 127, int8)`. After: `q`.

    Only where scale, zero point, range and dtype are the same on both sides, the range is that of the dtype
    (a narrower one would clamp), and the dtype has at most 16 bits. Export leaves such pairs where it
    removed an operator that did nothing, dropout for one. Every other quantise or dequantise stays where it
    is.
    """
    changed = False
    for node in list(module.graph.nodes):
        source = _requantized(node)
        if source is not None and may_share_memory(node, source, written):
            dequantized = node.args[0]
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
            assert isinstance(dequantized, torch.fx.Node)
            if not dequantized.users:
                module.graph.erase_node(dequantized)
            changed = True
    module.recompile()
    return changed


def _requantized(node: torch.fx.Node) -> torch.fx.Node | None:
    """The quantised tensor that `node` computes once more; None where it computes anything else."""
    wanted = _PAIRS.get(_name(node))
    inner = node.args[0] if wanted is not None else None
    if not isinstance(inner, torch.fx.Node) or _name(inner) != wanted or inner.kwargs or node.kwargs:
        return None
    source = inner.args[0]
    if not isinstance(source, torch.fx.Node) or inner.args[1:] != node.args[1:]:
        return None
    *_, smallest, largest, dtype = node.args
    if dtype not in _EXACT or source.meta["val"].dtype != dtype:
        return None
    scale = node.args[1]
    if isinstance(scale, float) and not _SMALLEST_SCALE < scale < 1 / _SMALLEST_SCALE:
        return None
    limits = torch.iinfo(dtype)  # type: ignore[arg-type]
    if (smallest, largest) != (limits.min, limits.max):
        return None
    return source


def _name(node: torch.fx.Node) -> Any:
    return getattr(node.target, "__name__", None) if node.op == "call_function" else None

"""Mistakes in how a captured model was quantised, found before anything is lowered."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.errors import ExportError, UnsupportedProgramError
from pteron.exir.edge.control_flow import graph_modules
from pteron.exir.edge.source_location import source_location
from pteron.exir.passes.constant_values import constant_values
from pteron.exir.passes.problem import Problem, operands_text, problems_text

_NAMESPACES = ("quantized_decomposed", "torchao")
_QUANTIZE, _DEQUANTIZE = "quantize_", "dequantize_"
_FAKE = ("fake_quant", "_fake_quantize", "fused_moving_avg_obs")
#: Classes that watch values, in these packages.
_OBSERVERS = ("Observer", "FakeQuantize", "FakeQuantizer")
_PACKAGES = ("torchao.", "torch.ao.")
_CONVERT = "convert it first (convert_pt2e, or torchao.quantization.quantize_ with the convert step)"

Constants = Mapping[torch.fx.Node, torch.Tensor]


def refuse_broken_quantisation(program: ExportedProgram, method: str) -> None:
    """`UnsupportedProgramError` that lists, with module and line: observers and fake quantisation that were
    left in, scales that are 0, negative or not finite, ranges that their element type does not hold,
    dequantising by other numbers than what was quantised, and calibration that never ran.
    """
    problems: dict[Problem, None] = {}
    for module in graph_modules(program.graph_module):
        constants = constant_values(program) if module is program.graph_module else {}
        found = dict.fromkeys(_problems(module, constants, method))
        problems.update(found)
    if problems:
        first = next(iter(problems))
        raise UnsupportedProgramError(
            f"{len(problems)} problem(s) in how the model was quantised:\n{problems_text(list(problems))}",
            problems=tuple(problems),
            method=method,
            operator=first.operator,
            source_line=first.source_line,
        )


def refuse_observers(model: torch.nn.Module) -> None:
    """`ExportError` where modules of `model` observe or imitate quantisation, with the place of the first."""
    names = [name for name, each in model.named_modules() if _is_observer(type(each))]
    if not names:
        return
    nodes = model.graph.nodes if isinstance(model, torch.fx.GraphModule) else ()
    place = next(
        (_place(node) for node in nodes if node.op == "call_module" and node.target == names[0]), None
    )
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    raise ExportError(
        f"observers were left in: {names[0]}{more}" + (f" (from {place})" if place else ""),
        source_line=place,
        hint=_CONVERT,
    )


def _is_observer(kind: Any) -> bool:
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return name.startswith(_PACKAGES) and name.endswith(_OBSERVERS)


def _problems(module: torch.fx.GraphModule, constants: Constants, method: str) -> Iterator[Problem]:
    calls = [node for node in module.graph.nodes if isinstance(node.target, OpOverload)]
    for node in calls:
        if _observes(node):
            what = f"an observer or fake quantisation was left in; {_CONVERT}"
            yield Problem(method, None, what, _place(node))
        elif node.target.namespace in _NAMESPACES:
            for what in _wrong_numbers(node, constants):
                yield Problem(method, _name(node), what, _place(node), operands_text(node), node.name)
    quantized = [node for node in calls if _name(node) == "quantized_decomposed.quantize_per_tensor.default"]
    has_weights = any(_is_dequantize(node) and node.args[0] in constants for node in calls)
    if quantized and has_weights and all(node.args[1] == 1.0 and node.args[2] == 0 for node in quantized):
        what = (
            "calibration never ran: every activation has the scale 1 and the zero point 0 that an observer "
            "starts with; run the prepared model on inputs before convert_pt2e"
        )
        yield Problem(method, _name(quantized[0]), what, _place(quantized[0]), "", quantized[0].name)


def _observes(node: torch.fx.Node) -> bool:
    if any(part in node.target._schema.name for part in _FAKE):  # type: ignore[union-attr]
        return True
    stack = node.meta.get("nn_module_stack") or {}
    return any(_is_observer(kind) for _, kind in stack.values())


def _wrong_numbers(node: torch.fx.Node, constants: Constants) -> Iterator[str]:
    given = _arguments(node)
    for name in ("scale", "scales"):
        if name in given and node.target._schema.name.partition("::")[2].startswith((_QUANTIZE, _DEQUANTIZE)):  # type: ignore[union-attr]
            yield from _wrong_scale(name, given[name], constants)
    low, high = given.get("quant_min"), given.get("quant_max")
    dtype = given.get("dtype") or given.get("output_dtype" if "input_dtype" not in given else "input_dtype")
    if isinstance(low, int) and isinstance(high, int) and isinstance(dtype, torch.dtype):
        yield from _wrong_range(low, high, dtype)
    source = node.args[0] if node.args else None
    if not _is_dequantize(node) or not isinstance(source, torch.fx.Node):
        return
    value = source.meta.get("val")
    if isinstance(value, torch.Tensor) and isinstance(dtype, torch.dtype) and value.dtype != dtype:
        yield f"mixed schemes: it states elements of {_short(dtype)}, and reads {_short(value.dtype)}"
    if "per_tensor" in _name(node) and _name(source) == _name(node).replace(_DEQUANTIZE, _QUANTIZE):
        stated, before = (_numbers(each) for each in (node, source))
        if stated != before:
            yield (
                f"mixed schemes: it dequantises by scale {stated[0]} and zero point {stated[1]} what "
                f"{source} quantised by {before[0]} and {before[1]}"
            )


def _numbers(node: torch.fx.Node) -> tuple[Any, ...]:
    return node.args[1], node.args[2]


def _wrong_scale(name: str, given: Any, constants: Constants) -> Iterator[str]:
    value = constants.get(given) if isinstance(given, torch.fx.Node) else given
    if isinstance(value, torch.Tensor):
        numbers = value.detach().to(torch.float64).flatten()
    elif isinstance(value, (int, float)):
        numbers = torch.tensor([value], dtype=torch.float64)
    else:
        return  # a run computes it
    bad = ~(numbers.isfinite() & (numbers > 0))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        where = f" (number {first} of {len(numbers)})" if len(numbers) > 1 else ""
        yield f"{name} is {float(numbers[first])}{where}; expected finite numbers above 0"


def _wrong_range(low: int, high: int, dtype: torch.dtype) -> Iterator[str]:
    try:
        limits = torch.iinfo(dtype)
    except TypeError:
        yield f"elements of {_short(dtype)} are no integers that can be stored; expected int8 or uint8"
        return
    if limits.bits < 8:
        yield f"elements of {limits.bits} bits ({_short(dtype)}) have no kernels; expected int8 with a range"
    elif not limits.min <= low < high <= limits.max:
        yield f"the range {low} to {high} does not fit {_short(dtype)}"


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _is_dequantize(node: torch.fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and (
        node.target.namespace in _NAMESPACES
        and node.target._schema.name.partition("::")[2].startswith(_DEQUANTIZE)
    )


def _name(node: torch.fx.Node) -> str:
    return str(node.target)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _place(node: torch.fx.Node) -> str:
    """Where a node comes from. PT2E records little on what it inserts: that is for the layer that reads it,
    or whose result it reads.
    """
    own = source_location(node)
    seen = {node}
    waiting = [node]
    while waiting and not own.module:
        each = waiting.pop(0)
        found = source_location(each)
        own = dataclasses.replace(own, module=found.module)
        if own.file is None:
            own = dataclasses.replace(own, file=found.file, line=found.line)
        if each is node or _is_inserted(each):
            near = [other for other in (*each.users, *each.all_input_nodes) if other not in seen]
            seen.update(near)
            waiting.extend(near)
    return str(own)


def _is_inserted(node: torch.fx.Node) -> bool:
    is_operator = isinstance(node.target, OpOverload) and node.target.namespace in _NAMESPACES
    return is_operator or node.op == "call_module"

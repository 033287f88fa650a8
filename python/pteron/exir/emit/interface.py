"""Names, ranges and relations of a method's inputs and outputs, as the program file carries them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils._pytree import TreeSpec, tree_flatten_with_path, tree_unflatten
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod

from pteron.exir.edge.extent_bounds import Ranges, extent_bounds, number_bounds, symbol_name
from pteron.exir.edge.gradient_outputs import gradient_of

# One symbol to the eighth is no extent that a tensor has.
_MOST_FACTORS = 8


def extent_text(expression: sympy.Expr, name: Callable[[str], str]) -> str | None:
    """`expression` in the grammar of `pteron.interface`: integers, symbols, `+ - * // %`, parentheses,
    `max(...)`, `min(...)`, with Python's meaning. None where it needs more than that.

    `name` gives the name under which a symbol is written.
    """
    try:
        return _text(expression, name)
    except _NotExpressibleError:
        return None


class _NotExpressibleError(Exception):
    pass


def _text(expression: Any, name: Callable[[str], str]) -> str:
    if expression.is_Symbol:
        return name(str(expression))
    if isinstance(expression, sympy.Integer):
        return str(int(expression))
    if isinstance(expression, sympy.Add):
        return _sum(expression, name)
    if isinstance(expression, (sympy.Mul, sympy.Pow)):
        return "*".join(_atom(factor, name) for factor in _factors(expression))
    if isinstance(expression, (FloorDiv, CleanDiv)):
        return f"{_atom(expression.args[0], name)} // {_atom(expression.args[1], name)}"
    if isinstance(expression, (Mod, PythonMod)):
        return f"{_atom(expression.args[0], name)} % {_atom(expression.args[1], name)}"
    if isinstance(expression, (Max, Min, sympy.Max, sympy.Min)):
        function = "max" if isinstance(expression, (Max, sympy.Max)) else "min"
        return f"{function}({', '.join(_text(each, name) for each in sorted(expression.args, key=str))})"
    raise _NotExpressibleError


def _sum(expression: sympy.Add, name: Callable[[str], str]) -> str:
    parts: list[str] = []
    for term in expression.as_ordered_terms():
        if term.could_extract_minus_sign():
            parts += ["-" if parts else "0 -", _product(-term, name)]
        else:
            parts += ["+", _product(term, name)] if parts else [_product(term, name)]
    return " ".join(parts)


def _product(term: sympy.Expr, name: Callable[[str], str]) -> str:
    text = _text(term, name)
    return f"({text})" if isinstance(term, (FloorDiv, CleanDiv, Mod, PythonMod)) else text


def _factors(expression: sympy.Expr) -> list[sympy.Expr]:
    factors: list[sympy.Expr] = []
    for factor in expression.as_ordered_factors():
        base, exponent = factor.as_base_exp()
        if not isinstance(exponent, sympy.Integer) or not 1 <= int(exponent) <= _MOST_FACTORS:
            raise _NotExpressibleError
        factors += [base] * int(exponent)
    return factors


def _atom(expression: Any, name: Callable[[str], str]) -> str:
    text = _text(expression, name)
    is_whole = (
        expression.is_Symbol or text.isdigit() or isinstance(expression, (Max, Min, sympy.Max, sympy.Min))
    )
    return text if is_whole else f"({text})"


INTERFACE_KEY = "pteron.interface"

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def method_interface(program: ExportedProgram) -> dict[str, Any]:
    """`{"inputs": [...], "outputs": [...], "parameters": [...]}`: values flat, in the order of the method's
    own lists; the names of its positional parameters, where the program knows them.
    """
    names = _SymbolNames()
    interface: dict[str, Any] = {"inputs": _inputs(program, names), "outputs": _outputs(program, names)}
    parameters = _parameters(program)
    if parameters:
        interface["parameters"] = parameters
    return interface


def _parameters(program: ExportedProgram) -> list[str]:
    """Names of the positional parameters, as the model's `forward` has them; empty where nobody knows."""
    calls = program.module_call_graph
    signature = calls[0].signature if calls and calls[0].fqn == "" else None
    structure = program.call_spec.in_spec
    if signature is None or not signature.forward_arg_names or structure is None or not structure.children():
        return []
    positional = structure.child(0).num_children
    return [str(name) for name in signature.forward_arg_names[:positional]]


class _SymbolNames:
    """Short names for symbols, in order of appearance: `s0`, `s1`, ..."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name(self, symbol: str) -> str:
        return self._names.setdefault(symbol, f"s{len(self._names)}")

    def expression(self, extent: torch.SymInt) -> str | None:
        expression = sympy.sympify(extent.node.expr)
        for symbol in sorted(expression.free_symbols, key=str):
            self.name(str(symbol))
        return extent_text(expression, self.name)


def _inputs(program: ExportedProgram, names: _SymbolNames) -> list[dict[str, Any]]:
    nodes = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    specs = program.graph_signature.input_specs
    return [
        _entry(str(node.target), node.meta.get("val"), program.range_constraints, names)
        for spec, node in zip(specs, nodes, strict=True)
        if spec.kind is InputKind.USER_INPUT
    ]


def _outputs(program: ExportedProgram, names: _SymbolNames) -> list[dict[str, Any]]:
    returned = program.graph_module.graph.output_node().args[0]
    specs = program.graph_signature.output_specs
    gradients = [gradient_of(spec) for spec in specs]
    own = iter(output_names(program.call_spec.out_spec, gradients.count(None)))
    entries = []
    for spec, value, gradient in zip(specs, returned, gradients, strict=True):
        name = next(own) if gradient is None else f"grad.{gradient}"
        is_constant = isinstance(spec.arg, ConstantArgument) or not isinstance(value, torch.fx.Node)
        entries.append(
            _entry(name, None if is_constant else value.meta.get("val"), program.range_constraints, names)
        )
    return entries


def output_names(tree: TreeSpec | None, count: int) -> list[str]:
    """A name for each leaf of a result: dict keys as they are, positions as `output_<n>`, levels joined by
    dots.
    """
    if tree is None or tree.num_leaves != count:
        return [f"output_{index}" for index in range(count)]
    # Tensors, because a class may take nothing else for leaves (caches of transformers).
    sample = tree_unflatten([torch.empty(0)] * count, tree)
    leaves, _ = tree_flatten_with_path(sample, is_leaf=lambda v: v is None)
    if len(leaves) != count:
        return [f"output_{index}" for index in range(count)]
    return [_path_name(path) for path, _ in leaves]


def _path_name(path: tuple[Any, ...]) -> str:
    parts: list[str] = []
    for key in path:
        if hasattr(key, "key"):
            parts.append(str(key.key))
        elif hasattr(key, "idx"):
            parts.append(str(key.idx) if parts else f"output_{key.idx}")
        else:
            parts.append(str(getattr(key, "name", key)))
    return ".".join(parts) or "output"


def _entry(name: str, value: Any, ranges: Ranges, names: _SymbolNames) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name}
    if isinstance(value, torch.Tensor):
        entry["shape"] = [_dimension(extent, ranges, names) for extent in value.shape]
    elif isinstance(value, torch.SymInt) and not _is_number(value):
        smallest, largest = number_bounds(value, ranges)
        entry["range"] = [
            _SMALLEST if smallest is None else smallest,
            _LARGEST if largest is None else largest,
        ]
        symbol = symbol_name(value)
        if symbol is not None:
            entry["symbol"] = names.name(symbol)
    return entry


def _is_number(value: torch.SymInt) -> bool:
    return bool(sympy.sympify(value.node.expr).is_number)


def _dimension(extent: int | torch.SymInt, ranges: Ranges, names: _SymbolNames) -> int | dict[str, Any]:
    if isinstance(extent, int):
        return extent
    smallest, largest = extent_bounds(extent, ranges)
    if _is_number(extent):
        return smallest
    bounds = {"min": smallest, "max": _LARGEST if largest is None else largest}
    symbol = symbol_name(extent)
    if symbol is not None:
        return {"symbol": names.name(symbol), **bounds}
    text = names.expression(extent)
    return bounds if text is None else {"expr": text, **bounds}

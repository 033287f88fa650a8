"""Extents that are computed from others, as text that a program file carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min, Mod, PythonMod

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

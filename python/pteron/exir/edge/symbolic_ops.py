"""Operators on symbolic numbers (dimension extents and what is computed from them) and what they are
emitted as.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import torch

# Read by the emitter: target in the graph -> (operator name, overload) in the program file.
EMITTED_AS: dict[Any, tuple[str, str]] = {
    operator.add: ("executorch_prim::add", "Scalar"),
    operator.sub: ("executorch_prim::sub", "Scalar"),
    operator.mul: ("executorch_prim::mul", "Scalar"),
    operator.floordiv: ("executorch_prim::floordiv", "Scalar"),
    operator.truediv: ("executorch_prim::truediv", "Scalar"),
    operator.mod: ("executorch_prim::mod", "Scalar"),
    operator.neg: ("executorch_prim::neg", "Scalar"),
    operator.eq: ("executorch_prim::eq", "Scalar"),
    operator.gt: ("executorch_prim::gt", "Scalar"),
    operator.lt: ("executorch_prim::lt", "Scalar"),
    operator.ge: ("executorch_prim::ge", "Scalar"),
    operator.le: ("executorch_prim::le", "Scalar"),
    builtins.round: ("executorch_prim::round", "Scalar"),
    math.ceil: ("executorch_prim::ceil", "Scalar"),
    math.trunc: ("executorch_prim::trunc", "Scalar"),
    torch.sym_float: ("executorch_prim::sym_float", "Scalar"),
    torch.sym_int: ("executorch_prim::sym_int", "Scalar"),
    torch.sym_max: ("executorch_prim::sym_max", "Scalar"),
    torch.sym_min: ("executorch_prim::sym_min", "Scalar"),
    torch.sym_not: ("executorch_prim::sym_not", "Scalar"),
    torch.sym_ite: ("executorch_prim::sym_ite", "Scalar"),
    torch.ops.aten.sym_size.int: ("aten::sym_size", "int"),
    torch.ops.aten.sym_numel.default: ("aten::sym_numel", ""),
    torch.ops.aten._local_scalar_dense.default: ("aten::_local_scalar_dense", ""),
}


def is_symbolic_op(target: Any) -> bool:
    """Whether a node target computes a symbolic number and is emitted without an out argument."""
    try:
        return target in EMITTED_AS
    except TypeError:
        return False


def is_symbolic_number(value: Any) -> bool:
    """Whether a node's value is a number that is computed at run time, or was traced as a constant."""
    return isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))

"""The operators that loops are made of in a program, beside those of their bodies."""

from __future__ import annotations

from pteron.exir.edge.control_flow import ControlFlow

#: (operator, overload), as in the program file.
SELECT_ROW = ("aten::select_copy", "int_out")
APPEND_ROW = ("executorch_prim::et_copy_index", "tensor")
COPY_TENSOR = ("dim_order_ops::_clone_dim_order", "out")
EMPTY_TENSOR = ("aten::empty", "out")
EXTENT = ("aten::sym_size", "int")
ADD = ("executorch_prim::add", "Scalar")
MULTIPLY = ("executorch_prim::mul", "Scalar")
FLOOR_DIVIDE = ("executorch_prim::floordiv", "Scalar")
REMAINDER = ("executorch_prim::mod", "Scalar")
IS_LESS = ("executorch_prim::lt", "Scalar")
IS_AT_LEAST = ("executorch_prim::ge", "Scalar")

_BY_KIND = {
    "cond": (),
    "while_loop": (COPY_TENSOR,),
    "map_impl": (SELECT_ROW, APPEND_ROW, ADD, IS_AT_LEAST),
    "scan": (SELECT_ROW, APPEND_ROW, COPY_TENSOR, ADD, IS_AT_LEAST),
    "associative_scan": (SELECT_ROW, APPEND_ROW, COPY_TENSOR, ADD, IS_AT_LEAST),
}


def loop_operators(call: ControlFlow) -> frozenset[str]:
    """Names, overload included, of the operators that the emission of `call` needs beside its bodies'."""
    return frozenset(".".join(name) for name in _BY_KIND[call.kind])

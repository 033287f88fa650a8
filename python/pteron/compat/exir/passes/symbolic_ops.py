"""Operators on symbolic numbers (`exir.passes.executorch_prim_ops_registry`).

In graphs of this package they are Python's own functions until the program is written, which writes them as
`executorch_prim`. So the operator that stands for each of them here is itself.
"""

from __future__ import annotations

from typing import Any

import torch

from pteron.exir.edge.symbolic_ops import EMITTED_AS
from pteron.exir.edge.symbolic_ops import is_symbolic_op as is_sym_op

__all__ = ["_EXECUTORCH_SYM_OPS", "_PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS", "is_sym_op"]

_PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS: dict[Any, Any] = {
    target: target for target, (operator, _) in EMITTED_AS.items() if operator.startswith("executorch_prim::")
}

#: Operators that edge graphs may hold although they are no edge operators.
_EXECUTORCH_SYM_OPS: set[Any] = {
    *EMITTED_AS,
    torch.ops.aten.sym_stride.int,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
}

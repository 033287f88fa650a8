"""The passes of each stage, in the order in which they run. A pass changes the program that it is given."""

from __future__ import annotations

from collections.abc import Callable

from torch.export import ExportedProgram

from pteron.exir.passes.assign_debug_handles import assign_debug_handles
from pteron.exir.passes.cancel_permutes import cancel_permutes
from pteron.exir.passes.eliminate_dead_code import eliminate_dead_code
from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase
from pteron.exir.passes.fold_batch_norms import fold_batch_norms
from pteron.exir.passes.fold_constants import FoldConstants
from pteron.exir.passes.merge_common_subexpressions import merge_common_subexpressions
from pteron.exir.passes.merge_views import merge_views
from pteron.exir.passes.normalize_layouts import normalize_layouts
from pteron.exir.passes.promote_mixed_dtypes import promote_mixed_dtypes
from pteron.exir.passes.prune_empty_tensors import prune_empty_tensors
from pteron.exir.passes.refresh_values import refresh_values
from pteron.exir.passes.remove_assertions import remove_assertions
from pteron.exir.passes.remove_noop_copies import remove_noop_copies
from pteron.exir.passes.remove_noops import remove_noops
from pteron.exir.passes.remove_requantization import remove_requantization
from pteron.exir.passes.replace_views_with_copies import replace_views_with_copies
from pteron.exir.passes.replace_with_edge_ops import replace_with_edge_ops
from pteron.exir.passes.scalar_to_tensor import scalar_to_tensor
from pteron.exir.passes.spell_out_symbolic_ops import spell_out_symbolic_ops
from pteron.exir.passes.state_dim_order import state_dim_order
from pteron.exir.passes.sym_to_tensor import sym_to_tensor

Pass = Callable[[ExportedProgram], None]

BEFORE_CORE_ATEN_CHECK: tuple[Pass, ...] = (remove_assertions,)

CORE_ATEN_TO_EDGE: tuple[Pass, ...] = (
    normalize_layouts,
    replace_views_with_copies,
    refresh_values,
    remove_noops,
    scalar_to_tensor,
    spell_out_symbolic_ops,
    sym_to_tensor,
    promote_mixed_dtypes,
    state_dim_order,
    replace_with_edge_ops,
    eliminate_dead_code,
    assign_debug_handles,
)

FOLD_CONSTANTS = FoldConstants()

# What `to_executorch` does to the operators that no backend took, before they get memory.
OPTIMIZATIONS: tuple[ExportedProgramPassBase, ...] = (
    prune_empty_tensors,
    remove_requantization,
    cancel_permutes,
    merge_views,
    remove_noop_copies,
    merge_common_subexpressions,
    FOLD_CONSTANTS,
    fold_batch_norms,
)


def folds(each: ExportedProgramPassBase) -> bool:
    """Whether a pass of `OPTIMIZATIONS` replaces constants of the model by others."""
    return isinstance(each, FoldConstants) or each is fold_batch_norms


def passes_to_edge(*, skip_dim_order: bool) -> tuple[Pass, ...]:
    """The passes from core ATen to edge; without the dimension-order rewrite where the caller switched it
    off.
    """
    return tuple(p for p in CORE_ATEN_TO_EDGE if not (skip_dim_order and p is state_dim_order))

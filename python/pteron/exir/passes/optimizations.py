"""The passes that make shorter what no backend took, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.export import ExportedProgram

from pteron.exir.lowering_report import StageRecord
from pteron.exir.passes.cancel_permutes import cancel_permutes
from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase
from pteron.exir.passes.fold_batch_norms import fold_batch_norms
from pteron.exir.passes.fold_constants import FoldConstants
from pteron.exir.passes.merge_common_subexpressions import merge_common_subexpressions
from pteron.exir.passes.merge_views import merge_views
from pteron.exir.passes.prune_empty_tensors import prune_empty_tensors
from pteron.exir.passes.remove_noop_copies import remove_noop_copies
from pteron.exir.passes.remove_requantization import remove_requantization

FOLD_CONSTANTS = FoldConstants()

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
"""What `ExecutorchBackendConfig(optimize=True)` stands for."""


def folds(each: ExportedProgramPassBase) -> bool:
    """Whether a pass of `OPTIMIZATIONS` replaces constants of the model by others."""
    return isinstance(each, FoldConstants) or each is fold_batch_norms


def optimize_programs(
    programs: Mapping[str, ExportedProgram], passes: Sequence[ExportedProgramPassBase]
) -> dict[str, ExportedProgram]:
    """Run the optimisations: each of `passes` over every method, then the next one.

    The programs given are changed.
    """
    changed = dict(programs)
    steps = StageRecord(changed)
    for each in passes:
        with steps.of(_name(each), "") as done:
            bound = each.across(changed)
            done |= {name: bound(program).exported_program for name, program in changed.items()}
        changed.update(done)
    return changed


def _name(each: ExportedProgramPassBase) -> str:
    return str(getattr(each, "__name__", type(each).__name__))

"""Run optimisations over the methods of one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.export import ExportedProgram

from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase


def optimize_programs(
    programs: Mapping[str, ExportedProgram], passes: Sequence[ExportedProgramPassBase]
) -> dict[str, ExportedProgram]:
    """Each of `passes` over every method, then the next one. The programs given are changed."""
    changed = dict(programs)
    for each in passes:
        bound = each.across(changed)
        changed = {name: bound(program).exported_program for name, program in changed.items()}
    return changed

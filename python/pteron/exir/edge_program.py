"""From a captured `ExportedProgram` to the edge dialect."""

from __future__ import annotations

from collections.abc import Collection

from torch._ops import OpOverload
from torch.export import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.config.compile_config import EdgeCompileConfig
from pteron.exir.decompose.core_decompositions import KEPT_FOR_KERNELS, decompose_around, kept_for_backends
from pteron.exir.decompose.preserved_operators import PreservedOperators
from pteron.exir.decompose.prims_as_aten import SCALAR_OPS_OF_ONE_NODE
from pteron.exir.edge.lost_dimensions import refuse_lost_dimensions
from pteron.exir.edge.stages import CORE_ATEN, EDGE
from pteron.exir.edge.training_mode import warn_of_training_mode
from pteron.exir.edge.verify import EdgeDialectVerifier, verify
from pteron.exir.pass_order import CAPTURED, TO_CORE_ATEN, TO_EDGE, ToEdge
from pteron.exir.passes.pass_list import run_stage
from pteron.exir.passes.refuse_broken_quantisation import refuse_broken_quantisation
from pteron.exir.progress import part, step

#: Shares of the time, for the expected one: most is PyTorch's decompositions (benches/lowering_speed.py).
_CAPTURED_SHARE, _CORE_SHARE = 0.05, 0.75


def edge_program(
    program: ExportedProgram,
    config: EdgeCompileConfig,
    method: str,
    preserved: PreservedOperators | None = None,
    kept_for_kernels: Collection[OpOverload] = KEPT_FOR_KERNELS,
) -> ExportedProgram:
    """A new program in the edge dialect that computes what `program` computes; `program` is left as it was.

    Core ATen by PyTorch's decompositions, functional, every operator an `EdgeOpOverload`, debug handles set.
    `preserved`: what backends want whole, beside what the config names. `kept_for_kernels`: what stays whole
    because kernels do it better; with it, what backends look for stays whole too.
    Raises `VerificationError` where a stage's rules are broken and the config asks for the check, and
    `UnsupportedProgramError` for mistakes in how the model was quantised; warns where operators compute as in
    training.
    """
    if program.dialect == EdgeDialectVerifier.dialect:
        raise ExportError(f"method {method!r} is in the edge dialect already", method=method)
    refuse_broken_quantisation(program, method)
    warn_of_training_mode(program, method)
    wanted = preserved if preserved is not None else PreservedOperators()
    whole = {*config.preserve_ops, *config._core_aten_ops_exception_list, *wanted.always, *kept_for_kernels}
    if kept_for_kernels:
        whole |= kept_for_backends(program)
    to_edge = ToEdge(config, frozenset(whole), wanted)
    step(f"{method!r}: {len(program.graph.nodes):,} nodes to core ATen")
    with part(_CAPTURED_SHARE):
        captured = run_stage(CAPTURED, {method: program}, to_edge)
    with part(_CORE_SHARE):
        if wanted.where:
            # Filters choose among calls, so all of them have to be there.
            captured = {method: decompose_around(captured[method], whole | wanted.all, method)}
        core = run_stage(TO_CORE_ATEN, captured, to_edge)
        if config._check_ir_validity:
            exceptions = whole | wanted.all | SCALAR_OPS_OF_ONE_NODE
            verify(core[method], CORE_ATEN, method=method, exceptions=exceptions)
    step(f"{method!r}: {len(core[method].graph.nodes):,} nodes to the edge dialect")
    with part(1.0 - _CAPTURED_SHARE - _CORE_SHARE):
        edge = run_stage(TO_EDGE, core, to_edge)[method]
        if config._check_ir_validity:
            verify(edge, EDGE, method=method)
    refuse_lost_dimensions(edge, method)
    return edge

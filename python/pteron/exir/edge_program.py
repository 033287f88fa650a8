"""From a captured `ExportedProgram` to the edge dialect."""

from __future__ import annotations

import copy
from collections.abc import Collection

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature

from pteron.errors import ExportError
from pteron.exir.compile_config import EdgeCompileConfig
from pteron.exir.core_decompositions import KEPT_FOR_KERNELS, decompose_to_core
from pteron.exir.edge.edge_dialect_verifier import EdgeDialectVerifier
from pteron.exir.edge.lost_dimensions import refuse_lost_dimensions
from pteron.exir.edge.stages import CORE_ATEN, EDGE
from pteron.exir.edge.verify import verify
from pteron.exir.passes.lift_body_constants import lift_body_constants
from pteron.exir.passes.pass_order import BEFORE_CORE_ATEN_CHECK, passes_to_edge
from pteron.exir.passes.separate_updates import separate_updates
from pteron.exir.passes.spell_out_copies import spell_out_copies
from pteron.exir.preserved_operators import PreservedOperators, hide, show
from pteron.exir.prims_as_aten import AS_SMALL_AS_A_PRIM
from pteron.exir.progress import step


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
    because kernels do it better.
    Raises `VerificationError` where a stage's rules are broken and the config asks for the check.
    """
    if program.dialect == EdgeDialectVerifier.dialect:
        raise ExportError(f"method {method!r} is in the edge dialect already", method=method)
    wanted = preserved if preserved is not None else PreservedOperators()
    whole = {*config.preserve_ops, *config._core_aten_ops_exception_list, *wanted.always, *kept_for_kernels}
    step(f"{method!r}: {len(program.graph.nodes):,} nodes to core ATen")
    core = core_aten_program(program, whole, wanted, method)
    step(f"{method!r}: {len(core.graph.nodes):,} nodes to the edge dialect")
    for apply in BEFORE_CORE_ATEN_CHECK:
        apply(core)
    if config._check_ir_validity:
        verify(core, CORE_ATEN, method=method, exceptions=whole | wanted.all | AS_SMALL_AS_A_PRIM)
    for apply in passes_to_edge(skip_dim_order=config._skip_dim_order):
        apply(core)
    edge = in_edge_dialect(core)
    if config._check_ir_validity:
        verify(edge, EDGE, method=method)
    refuse_lost_dimensions(edge, method)
    return edge


def core_aten_program(
    program: ExportedProgram, whole: Collection[OpOverload], preserved: PreservedOperators, method: str
) -> ExportedProgram:
    """`program` decomposed to core ATen, with tables of its own, ready for the passes of `pass_order`.

    `whole`: operators that stay whole at every call; `preserved`: what backends want whole.
    """
    captured = separate_updates(spell_out_copies(program))
    core = decompose_to_core(hide(lift_body_constants(captured), preserved), whole, method)
    show(core)
    # Passes replace tensors in these tables; those of the program that was given must not change.
    core._state_dict = dict(core.state_dict)
    core._constants = dict(core.constants)
    return core


def in_edge_dialect(program: ExportedProgram) -> ExportedProgram:
    """`program` rebuilt with the edge dialect's verifier, which torch runs on it here and after later
    rewrites.
    """
    return ExportedProgram(
        root=program.graph_module,
        graph=program.graph_module.graph,
        graph_signature=ExportGraphSignature(
            input_specs=list(program.graph_signature.input_specs),
            output_specs=list(program.graph_signature.output_specs),
        ),
        state_dict=program.state_dict,
        range_constraints=dict(program.range_constraints),
        module_call_graph=copy.copy(program.module_call_graph),
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=[EdgeDialectVerifier],
    )

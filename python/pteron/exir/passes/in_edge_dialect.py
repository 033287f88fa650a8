"""Let PyTorch check a program by the rules of the edge dialect."""

from __future__ import annotations

import copy

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature

from pteron.exir.edge.verify import EdgeDialectVerifier


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

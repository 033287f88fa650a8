"""Parameters that a joint graph has a gradient of go to a data file, where they can be exchanged."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from pteron.exir.edge.gradient_outputs import gradient_of
from pteron.exir.passes.constant_values import CONSTANT_TAG, DEFAULT_TAG


def tag_trained_weights(program: ExportedProgram) -> None:
    """Mark these parameters, in place, where no pass has named a data file for them. The mark also keeps them
    as they are: nothing is computed from their values at export.
    """
    signature = program.graph_signature
    trained = {gradient_of(spec) for spec in signature.output_specs}
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    for spec, node in zip(signature.input_specs, placeholders, strict=True):
        if spec.kind is InputKind.PARAMETER and spec.target in trained:
            node.meta.setdefault(CONSTANT_TAG, DEFAULT_TAG)

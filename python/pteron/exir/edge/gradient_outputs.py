"""Outputs of joint graphs: programs that compute gradients beside the model's results."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec
from torch.utils._pytree import TreeSpec, tree_structure

_GRADIENTS = (OutputKind.GRADIENT_TO_PARAMETER, OutputKind.GRADIENT_TO_USER_INPUT)
#: Kinds of outputs that a method gives back.
GIVEN_BACK = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT, *_GRADIENTS)


def gradient_of(spec: OutputSpec) -> str | None:
    """Name of the parameter or input that an output is the gradient of; None where it is the model's own."""
    return spec.target if spec.kind in _GRADIENTS else None


def result_structure(program: ExportedProgram) -> TreeSpec | None:
    """The structure of all results: the model's own, or a flat tuple where gradients stand among them."""
    specs = program.graph_signature.output_specs
    if any(gradient_of(spec) is not None for spec in specs):
        return tree_structure((0,) * len(specs))
    structure: TreeSpec | None = program.call_spec.out_spec
    return structure

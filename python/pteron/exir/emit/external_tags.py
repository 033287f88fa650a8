"""Which tensors of a program go to data files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.export.graph_signature import InputSpec

from pteron.errors import ExportError
from pteron.exir.edge.source_location import source_location
from pteron.exir.passes.constant_values import CONSTANT_TAG, DEFAULT_TAG

#: A function from the placeholder of a constant to the name of its data file, or None.
TagFunction = Callable[[torch.fx.Node], str | None]


@dataclass(frozen=True)
class ExternalTags:
    """Settings.

    `constants`: True puts all constants of the model into the default file, a function names a file for each
    or None; constants that were written into the code ("lifted") stay in the program. A pass that sets
    `node.meta["constant_tag"]` of a constant decides for it.
    `mutable`: the initial values of buffers that a method updates go to the default file.
    """

    constants: bool | TagFunction = False
    mutable: bool = False

    def of_constant(self, node: torch.fx.Node, tensor: torch.Tensor) -> str | None:
        """The data file of a constant; None for the program file.

        ExportError where the function gives something that is no file name.
        """
        if tensor.numel() == 0:
            return None
        marked = node.meta.get(CONSTANT_TAG)
        if marked is not None:
            return checked_tag(marked, f"constant_tag of {node.name}", str(source_location(node)))
        if self.constants is False or "_lifted_tensor" in node.name:
            return None
        if self.constants is True:
            return DEFAULT_TAG
        tag = self.constants(node)
        if tag is None:
            return None
        return checked_tag(
            tag, f"external_constants({node.name}) of ExecutorchBackendConfig", str(source_location(node))
        )

    def of_initial_value(self, spec: InputSpec, tensor: torch.Tensor) -> str | None:
        """The data file of a mutable buffer's initial value; None for the program file."""
        return DEFAULT_TAG if self.mutable and spec.target is not None and tensor.numel() else None


def checked_tag(tag: object, where: str, source_line: str | None = None) -> str:
    """`tag`, if it can be the name of a file in a directory that the caller chooses; else ExportError."""
    if isinstance(tag, str) and tag.strip(". ") and not set(tag) & set("/\\:\0") and tag.isprintable():
        return tag
    raise ExportError(
        f"{where}: {tag!r} cannot be the name of a data file",
        expected="None, or a file name without a directory",
        got=repr(tag),
        source_line=source_line,
        hint='a tag like "weights" becomes the file weights.ptd',
    )

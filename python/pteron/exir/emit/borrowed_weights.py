"""Tensors that a program is written from without a copy."""

from __future__ import annotations

import torch

from pteron.errors import ExportError


class BorrowedWeights:
    """Remembers what the tensors were when the program was emitted."""

    def __init__(self) -> None:
        self._tensors: list[tuple[str, torch.Tensor, int]] = []

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Note that `tensor` is borrowed; `name` is for messages."""
        if not tensor.is_inference():  # such tensors count no changes
            self._tensors.append((name, tensor, tensor._version))

    def check(self) -> None:
        """ExportError where a tensor was changed in place since it was added."""
        changed = [name for name, tensor, version in self._tensors if tensor._version != version]
        if changed:
            shown = ", ".join(map(repr, changed[:6])) + (", ..." if len(changed) > 6 else "")
            raise ExportError(
                f"{len(changed)} weights of the program were changed in place after to_executorch: {shown}",
                expected="the weights that the program was made with",
                got=shown,
                hint="save the program, or take its buffer, before the model changes; or export it again",
            )

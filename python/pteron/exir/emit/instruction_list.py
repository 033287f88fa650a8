"""The instructions of one method, and the debug handles of each."""

from __future__ import annotations

import torch

from pteron.exir.edge.debug_handles import debug_handles, number_by_instruction
from pteron.exir.edge.source_location import stack_frames
from pteron.exir.schema import (
    DelegateCall,
    Frame,
    FrameList,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Operator,
)


class InstructionList:
    """Grows instruction by instruction; every one belongs to a node of the graph. With `keeps_frames`, the
    stack at which each node's operator was called is kept too.

    `handles`: the debug handles of each instruction. `debug_handles`: instruction index → handle, or handles.
    """

    def __init__(self, *, keeps_frames: bool = False) -> None:
        self.frames: list[FrameList] | None = [] if keeps_frames else None
        self.instructions: list[Instruction] = []
        self.handles: list[list[int]] = []
        self.debug_handles: dict[int, int | list[int]] = {}
        self._operators: dict[tuple[str, str], int] = {}
        self._first_of: dict[torch.fx.Node, int] = {}

    @property
    def here(self) -> int:
        """Index of the next instruction."""
        return len(self.instructions)

    @property
    def operators(self) -> list[Operator]:
        """The operators that kernel calls refer to by index."""
        return [Operator(name, overload) for name, overload in self._operators]

    def kernel(self, name: tuple[str, str], arguments: list[int], node: torch.fx.Node) -> None:
        """Append a call of operator `name` = (name, overload)."""
        index = self._operators.setdefault(name, len(self._operators))
        self._append(KernelCall(index, arguments), node)

    def delegate(self, index: int, arguments: list[int], node: torch.fx.Node, own: list[int]) -> int:
        """Append a call of delegate `index`, whose own debug handles are `own`; returns where it stands."""
        at = self.here
        self._append(DelegateCall(index, arguments), node)
        self.debug_handles[at] = own
        return at

    def move(self, source: int, target: int, node: torch.fx.Node) -> None:
        """Append: value `target` becomes what value `source` is."""
        self._append(MoveCall(source, target), node)

    def jump_false(self, condition: int, node: torch.fx.Node, destination: int = -1) -> JumpFalseCall:
        """Append a jump that is taken when value `condition` is false; where its destination is not known
        yet, `land` states it.
        """
        jump = JumpFalseCall(condition, destination)
        self._append(jump, node)
        return jump

    def land(self, jump: JumpFalseCall) -> None:
        """Let `jump` go to the next instruction."""
        jump.destination_instruction = self.here

    def number_nodes(self) -> None:
        """Let the debug handle of each node be the index of its first instruction."""
        for node, index in self._first_of.items():
            number_by_instruction(node, index)

    def _append(
        self, call: KernelCall | DelegateCall | JumpFalseCall | MoveCall, node: torch.fx.Node
    ) -> None:
        handles = list(debug_handles(node))
        if handles:
            self.debug_handles[self.here] = handles[0] if len(handles) == 1 else handles
        self._first_of.setdefault(node, self.here)
        self.instructions.append(Instruction(call))
        self.handles.append(handles)
        if self.frames is not None:
            self.frames.append(FrameList([Frame(*frame) for frame in stack_frames(node)]))

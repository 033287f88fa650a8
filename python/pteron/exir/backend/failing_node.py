"""Which node a backend was working on when it failed."""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType

import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.edge.control_flow import graph_modules


def failing_node(error: BaseException, programs: Iterable[ExportedProgram]) -> torch.fx.Node | None:
    """The node of `programs` that the innermost frame of `error`'s traceback holds, None if no frame does.

    Backends walk over nodes, and what they raise seldom says which one they were at: the variables of the
    frames that the exception came through do. A variable called `node` is preferred to others.
    """
    graphs = {id(module.graph) for program in programs for module in graph_modules(program.graph_module)}
    frames: list[FrameType] = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    for frame in reversed(frames):
        held = {
            name: value
            for name, value in frame.f_locals.items()
            if isinstance(value, torch.fx.Node) and id(value.graph) in graphs
        }
        if held:
            return held.get("node") or next(reversed(held.values()))
    return None

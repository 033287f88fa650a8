"""Operators that write into room made for them."""

from __future__ import annotations

from pteron.exir.edge.memory_nodes import alloc
from tests.exir.small_models import edge_of, random


def test_making_room_has_no_debug_handle() -> None:
    lowered = edge_of(lambda x: x.sin().cos(), random(3)).to_executorch()
    nodes = list(lowered.exported_program().graph.nodes)
    room = [node for node in nodes if node.target is alloc]
    assert room
    assert not any("debug_handle" in node.meta for node in room)
    # One handle for each operator, the index of its instruction, which a reader of the graph can count on.
    handles = [node.meta["debug_handle"] for node in nodes if "debug_handle" in node.meta]
    assert handles == [0, 1]

"""`DemoBackend`: the smallest compile half there is. Its blob says nothing, and nothing can run it."""

from __future__ import annotations

from typing import final

from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec


@final
class DemoBackend(BackendDetails):
    """Pretends to fuse the whole program into one step with the id 1."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Returns a fixed blob, and a mapping from step 1 to every debug handle of the program."""
        # A node that names a lowered module computes nothing and has no handle.
        computing = [node for node in edge_program.graph.nodes if node.op == "call_function"]
        # One entry for each node, as the peer's demo has it: nodes that share a handle repeat it.
        return PreprocessResult(
            processed_bytes=b"imqnncompiled",
            debug_handle_map={1: tuple(node.meta["debug_handle"] for node in computing)},
        )

"""`DemoBackend`: the smallest compile half there is. Its blob says nothing, and nothing can run it."""

from __future__ import annotations

from typing import final

from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.delegate_mapping_builder import DelegateMappingBuilder


@final
class DemoBackend(BackendDetails):
    """Pretends to fuse the whole program into one step with the id 1."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Returns a fixed blob, and a mapping from step 1 to every debug handle of the program."""
        mapping = DelegateMappingBuilder()
        computing = [node for node in edge_program.graph.nodes if node.op not in ("placeholder", "output")]
        mapping.insert_delegate_mapping_entry(nodes=computing, identifier=1)
        return PreprocessResult(
            processed_bytes=b"imqnncompiled",
            debug_handle_map=mapping.get_delegate_mapping(),
        )

"""`ExecutorBackend`, compile half: a backend whose blob is a whole program, which may have delegates of its
own.
"""

from __future__ import annotations

from typing import final

from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.program import EdgeProgramManager


@final
class ExecutorBackend(BackendDetails):
    """Writes its part of the model as a complete `.pte`, to be run by a runtime inside the runtime."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Takes the program through `to_executorch`.

        Compile specs go into the file as they are; there is none that this backend reads.

        Raises:
            RuntimeError: the spec `external_constants` is given.
        """
        if any(spec.key == "external_constants" for spec in compile_specs):
            raise RuntimeError(
                "ExecutorBackend: the compile spec 'external_constants' would put the weights of the program "
                "inside into a data file, and a blob has none; leave it out, and they are in the blob"
            )
        program = EdgeProgramManager(edge_program).to_executorch()
        handles = sorted({node.meta.get("debug_handle") or 0 for node in edge_program.graph.nodes} - {0})
        return PreprocessResult(
            processed_bytes=bytes(program.buffer), debug_handle_map={handle: (handle,) for handle in handles}
        )

"""`ExecutorBackend`, compile half: a backend whose blob is a whole program, which may have delegates of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.named_data_store import NamedDataStore, NamedDataStoreOutput
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.program import EdgeProgramManager
from pteron.exir.schema import DataFileEntry


@final
class ExecutorBackend(BackendDetails):
    """Writes its part of the model as a complete `.pte`, to be run by a runtime inside the runtime."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Takes the program through `to_executorch`.

        Args:
            edge_program: what to run.
            compile_specs: `external_constants`, whatever its value, puts the constants of the model into the
                data file of the program outside, under their names; the run half in Python finds them there.
                Other specs go into the file as they are.

        Raises:
            RuntimeError: a delegate inside keeps data of its own in a data file.
        """
        is_external = any(spec.key == "external_constants" for spec in compile_specs)
        config = ExecutorchBackendConfig(external_constants=is_external)
        program = EdgeProgramManager(edge_program).to_executorch(config)
        handles = sorted({node.meta.get("debug_handle") or 0 for node in edge_program.graph.nodes} - {0})
        return PreprocessResult(
            processed_bytes=bytes(program.buffer),
            debug_handle_map={handle: (handle,) for handle in handles},
            data_store_output=_beside(program.data_entries()),
        )


def _beside(files: Mapping[str, Sequence[DataFileEntry]]) -> NamedDataStoreOutput | None:
    """What stands in data files of the program inside, for those of the program outside."""
    store = NamedDataStore()
    for tag, entries in files.items():
        for entry in entries:
            if entry.layout is None:
                raise RuntimeError(
                    f"ExecutorBackend: a delegate of the program inside keeps {entry.key!r} in the data file "
                    f"{tag!r}, and the run half of this backend hands tensors on alone; let that delegate "
                    "keep it in the program, without external_tag"
                )
            store.add_named_data(entry.key, bytes(entry.data), entry.alignment, tag, entry.layout)
    return store.get_named_data_store_output() if files else None

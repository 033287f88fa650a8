"""The result of the compile half: a program ready to be written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from torch.export import ExportedProgram

from pteron.errors import ExportError
from pteron.exir.config.backend_config import ExecutorchBackendConfig
from pteron.exir.emit.emit_program import EmittedProgram
from pteron.exir.lowering_report import LoweringReport, LoweringStep
from pteron.exir.memory.memory_report import MemoryReport, memory_report
from pteron.exir.method_map import DEFAULT_METHOD
from pteron.exir.schema import DataFileEntry, Program
from pteron.exir.serialize.file_layout import FileLayout, write_file
from pteron.exir.serialize.serialize_program import lay_out_data_file, lay_out_program

if TYPE_CHECKING:
    from pteron.devtools.etrecord import ETRecord


class ExecutorchProgramManager:
    """A program as objects and as bytes. Made by `EdgeProgramManager.to_executorch`."""

    def __init__(
        self,
        emitted: EmittedProgram,
        planned_programs: Mapping[str, ExportedProgram],
        constant_methods: Mapping[str, Any],
        config: ExecutorchBackendConfig,
        lowering: Sequence[LoweringStep] = (),
    ) -> None:
        """`lowering`: what was done since capture, for `lowering_report`."""
        self._emitted = emitted
        self._planned_programs = dict(planned_programs)
        self._constant_methods = dict(constant_methods)
        self._config = config
        self._lowering = tuple(lowering)
        self._buffer: bytes | None = None
        self._etrecord: ETRecord | None = None

    def __repr__(self) -> str:
        plans = self.executorch_program.execution_plan
        methods = ", ".join(
            f"{plan.name}: {sum(len(chain.instructions) for chain in plan.chains):,} instructions, "
            f"{len(plan.delegates)} delegates, {sum(plan.non_const_buffer_sizes):,} bytes planned"
            for plan in plans
        )
        return f"<ExecutorchProgramManager of {methods}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.lowering_report()._repr_html_()}"

    @property
    def methods(self) -> set[str]:
        """Names of the methods that run a graph."""
        return set(self._planned_programs)

    @property
    def config_methods(self) -> set[str]:
        """Names of the methods that return a constant."""
        return set(self._constant_methods)

    def exported_program(self, method_name: str = DEFAULT_METHOD) -> ExportedProgram:
        """The planned graph of a method: out variants, allocations, write-backs; KeyError where there is
        none.
        """
        try:
            return self._planned_programs[method_name]
        except KeyError:
            raise KeyError(f"no method {method_name!r}; methods: {sorted(self._planned_programs)}") from None

    @property
    def executorch_program(self) -> Program:
        """The program as objects."""
        return self._emitted.program

    @property
    def _emitter_output(self) -> EmittedProgram:
        """The program as objects, with the maps that tools use; ExecuTorch's tools ask for it by this
        name.
        """
        return self._emitted

    @property
    def debug_handle_map(self) -> dict[str, dict[int, int | list[int]]]:
        """Method → instruction index → debug handle; for a delegate call the list of the delegate's own
        handles.
        """
        return self._emitted.debug_handle_map

    @property
    def delegate_map(self) -> dict[str, dict[int, dict[str, Any]]]:
        """Method → instruction index → backend name and its debug ids."""
        return self._emitted.delegate_map

    @property
    def instruction_id_to_num_outs_map(self) -> dict[str, dict[int, int]]:
        """Method → index of a delegate call → number of its results."""
        return self._emitted.instruction_id_to_num_outs_map

    def take_etrecord(self, record: ETRecord) -> None:
        """Let `get_etrecord` give a record of the stages before, with the maps of this program."""
        record.add_executorch_program(self)
        self._etrecord = record

    def get_etrecord(self) -> ETRecord:
        """What tools need to explain a run of this program.

        Raises:
            ExportError: no record was asked for.
        """
        if self._etrecord is None:
            raise ExportError(
                "ETRecord was not generated",
                hint="call to_edge, to_edge_transform_and_lower or executorch.export with "
                "generate_etrecord=True",
            )
        return self._etrecord

    def memory_report(self) -> MemoryReport:
        """Planned bytes beside the lower bound, and what is in use at the peak, by method and memory id."""
        sizes = {plan.name: plan.non_const_buffer_sizes for plan in self.executorch_program.execution_plan}
        return memory_report(
            {
                name: (program, sizes[name], self._config.planning_of(name).alignment)
                for name, program in self._planned_programs.items()
            }
        )

    def lowering_report(self) -> LoweringReport:
        """What each pass, partitioner and backend did from `to_edge` to this program: calls before and after
        by operator, and time.

        `str()` is a table, notebooks show one, `to_json()`, `to_dict()` and `to_dataframe()` give it to
        programs.
        """
        return LoweringReport(self._lowering)

    @property
    def buffer(self) -> bytes:
        """The bytes of the program file; made once, then kept. `save` needs no such copy."""
        if self._buffer is None:
            self._buffer = self._layout().to_bytes()
        return self._buffer

    @property
    def nbytes(self) -> int:
        """Size of the program file, which is not made for it."""
        return self._layout().size if self._buffer is None else len(self._buffer)

    def write_to_file(self, file: IO[bytes], *, strip: bool = False) -> None:
        """Write the program to an open binary file, piece by piece; `strip`: without debug information."""
        if self._buffer is not None and not strip:
            file.write(self._buffer)
        else:
            self._layout(strip=strip).write_to(file)

    def save(self, path: str | os.PathLike[str], *, strip: bool = False) -> None:
        """Write the program to `path`: a reader sees the old file or the whole new one.

        `strip`: without debug information (see `pteron.strip`). The weights are written from where the model
        has them. ValueError where the name does not end in `.pte`; ExportError where weights were changed in
        place since `to_executorch`; OSError where the file cannot be written.
        """
        target = Path(path)
        if target.suffix != ".pte":
            raise ValueError(f"save: expected a file name that ends in .pte, got {target.name!r}")
        write_file(target, "save: the program", self._layout(strip=strip).write_to)

    @property
    def data_files(self) -> tuple[str, ...]:
        """Names of the data files that the program needs beside it, as `write_tensor_data_to_file` writes
        them.
        """
        return tuple(_file_name(tag) for tag in self._emitted.data_files)

    def data_entries(self) -> dict[str, list[DataFileEntry]]:
        """Tag → what the data file holds; bytes of weights are borrowed from the model.

        ExportError where weights were changed in place since `to_executorch`.
        """
        self._emitted.weights.check()
        return {tag: list(entries) for tag, entries in self._emitted.data_files.items()}

    @property
    def _tensor_data(self) -> dict[str, bytes]:
        """Tag → the bytes of a data file."""
        return {tag: self._data_layout(tag).to_bytes() for tag in self._emitted.data_files}

    def write_tensor_data_to_file(self, outdir: str | os.PathLike[str]) -> None:
        """Write the data files of the program into the directory `outdir`, each under its tag with `.ptd`
        behind it.

        They belong to this program: `pteron.load(program, data=[...])`. Nothing is written for a program that
        keeps all its data inside. ExportError where weights were changed in place since `to_executorch`;
        OSError where a file cannot be written.
        """
        for tag in self._emitted.data_files:
            target = Path(outdir) / _file_name(tag)
            write_file(target, "write_tensor_data_to_file: the data file", self._data_layout(tag).write_to)

    def _layout(self, *, strip: bool = False) -> FileLayout:
        self._emitted.weights.check()
        return lay_out_program(self._emitted.program, strip=strip, **self._config.serialization_options())

    def _data_layout(self, tag: str) -> FileLayout:
        self._emitted.weights.check()
        return lay_out_data_file(
            self._emitted.data_files[tag], segment_alignment=self._config.segment_alignment
        )

    def dump_executorch_program(self, verbose: bool = False, out: IO[str] | None = None) -> None:
        """Print the listing of the program to `out`, or to standard output; `verbose` shows the objects
        too.
        """
        from pteron import _native

        print(_native.listing(self.buffer), file=out)
        if verbose:
            print(self._emitted.program, file=out)


def _file_name(tag: str) -> str:
    return tag if tag.endswith(".ptd") else f"{tag}.ptd"

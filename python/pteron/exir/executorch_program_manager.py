"""The result of the compile half: a program ready to be written."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from torch.export import ExportedProgram

from pteron.exir.backend_config import ExecutorchBackendConfig
from pteron.exir.emit.emit_program import EmittedProgram
from pteron.exir.memory.memory_report import MemoryReport, memory_report
from pteron.exir.programs_by_method import DEFAULT_METHOD
from pteron.exir.schema import Program
from pteron.exir.serialize.serialize_program import serialize_program


class ExecutorchProgramManager:
    """A program as objects and as bytes. Made by `EdgeProgramManager.to_executorch`."""

    def __init__(
        self,
        emitted: EmittedProgram,
        planned_programs: Mapping[str, ExportedProgram],
        constant_methods: Mapping[str, Any],
        config: ExecutorchBackendConfig,
    ) -> None:
        self._emitted = emitted
        self._planned_programs = dict(planned_programs)
        self._constant_methods = dict(constant_methods)
        self._config = config
        self._buffer: bytes | None = None

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
    def debug_handle_map(self) -> dict[str, dict[int, int | list[int]]]:
        """Method → instruction index → debug handle; for a delegate call the list of the delegate's own
        handles.
        """
        return self._emitted.debug_handle_map

    @property
    def delegate_map(self) -> dict[str, dict[int, dict[str, Any]]]:
        """Method → instruction index → backend name and its debug ids."""
        return self._emitted.delegate_map

    def memory_report(self) -> MemoryReport:
        """Planned bytes beside the lower bound, and what is in use at the peak, by method and memory id."""
        sizes = {plan.name: plan.non_const_buffer_sizes for plan in self.executorch_program.execution_plan}
        return memory_report(
            {
                name: (program, sizes[name], self._config.planning_of(name).alignment)
                for name, program in self._planned_programs.items()
            }
        )

    @property
    def buffer(self) -> bytes:
        """The bytes of the program file; written once, then kept."""
        if self._buffer is None:
            self._buffer = serialize_program(self._emitted.program, **self._config.serialization_options())
        return self._buffer

    def write_to_file(self, file: IO[bytes]) -> None:
        """Write the program to an open binary file."""
        file.write(self.buffer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to `path`: a reader sees the old file or the whole new one.

        ValueError where the name does not end in `.pte`; OSError where it cannot be written.
        """
        target = Path(path)
        if target.suffix != ".pte":
            raise ValueError(f"save: expected a file name that ends in .pte, got {target.name!r}")
        data = self.buffer
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            # The system's text names the temporary file, which means nothing to the caller.
            place = (
                "" if target.parent.is_dir() else f"; the directory {target.parent} does not exist, make it"
            )
            reason = f"save: the program cannot be written: {error.strerror}{place}"
            raise OSError(error.errno, reason, str(target)) from None
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def dump_executorch_program(self, verbose: bool = False, out: IO[str] | None = None) -> None:
        """Print the listing of the program to `out`, or to standard output; `verbose` shows the objects
        too.
        """
        from pteron import _native

        print(_native.listing(self.buffer), file=out)
        if verbose:
            print(self._emitted.program, file=out)

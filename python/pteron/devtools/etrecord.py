"""ETRecord: what an export knows of a program, for the tools that explain a run of it.

A ZIP file by ExecuTorch's layout, read and written by both sides: the captured program, the edge programs
before delegation, and the maps from instructions and steps of delegates to debug handles.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import torch
from torch._export.serde.serialize import SerializedArtifact
from torch.export import ExportedProgram

from pteron.compat.exir.serde.executorch_form import from_executorch_form, to_executorch_form
from pteron.compat.exir.serde.program_files import deserialize, serialize
from pteron.devtools.bundled_program import BundledProgram
from pteron.errors import ExportError
from pteron.exir.backend.program_copy import copy_with_own_state
from pteron.exir.executorch_program_manager import ExecutorchProgramManager
from pteron.exir.method_map import DEFAULT_METHOD
from pteron.exir.program import EdgeProgramManager
from pteron.exir.serialize.file_layout import write_file

_IDENTIFIER = "ETRECORD_V0"
_EXPORTED = "exported_program"
_EDGE = "edge_dialect_exported_program"
_GRAPH_ID = "export_graph_id"
_MAPS = ("debug_handle_map", "delegate_map", "instruction_id_to_num_outs_map")
_VALUES = ("reference_outputs", "representative_inputs")
_RESERVED = (_IDENTIFIER, _EXPORTED, _EDGE, "et_dialect_graph_module", *_MAPS, *_VALUES)
_PARTS = ("state_dict", "constants", "example_inputs")

#: Instruction → debug handle or handles, by method; keys are text in a record that was read.
Maps = dict[str, dict[Any, Any]]


class ETRecord:
    """A record. `to_edge(..., generate_etrecord=True)` begins one, `get_etrecord()` of the manager that
    `to_executorch` gives has it whole.

    `exported_program`: the captured program of the method "forward". `edge_dialect_program`: the edge program
    of the only method, or all of them by method. `graph_map`: further programs, by name and method.
    """

    def __init__(
        self,
        exported_program: ExportedProgram | None = None,
        export_graph_id: int | None = None,
        edge_dialect_program: ExportedProgram | dict[str, ExportedProgram] | None = None,
        graph_map: dict[str, ExportedProgram] | None = None,
        _debug_handle_map: Maps | None = None,
        _delegate_map: Maps | None = None,
        _instruction_id_to_num_outs_map: Maps | None = None,
        _reference_outputs: dict[str, list[Any]] | None = None,
        _representative_inputs: list[Any] | None = None,
    ) -> None:
        self.exported_program = exported_program
        self.export_graph_id = export_graph_id
        self.edge_dialect_program = edge_dialect_program
        self.graph_map = graph_map
        self._debug_handle_map = _debug_handle_map
        self._delegate_map = _delegate_map
        self._instruction_id_to_num_outs_map = _instruction_id_to_num_outs_map
        self._reference_outputs = _reference_outputs
        self._representative_inputs = _representative_inputs

    def __repr__(self) -> str:
        edge = self.edge_dialect_program
        methods = sorted(edge) if isinstance(edge, dict) else [DEFAULT_METHOD] if edge is not None else []
        graphs = sorted(self.graph_map or ())
        has_run = "with" if self._debug_handle_map is not None else "without"
        return f"<ETRecord of methods {methods}, further graphs {graphs}, {has_run} the maps of a program>"

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Writes the record to a file, which is whole or not there, or to an open one.

        Raises:
            ExportError: the edge program or the maps of a program are missing.
            OSError: the file cannot be written.
        """
        if not (self.edge_dialect_program and self._debug_handle_map):
            raise ExportError(
                "ETRecord must contain edge dialect program and executorch program to be saved",
                hint="get_etrecord() of what to_executorch() gives has both",
            )
        if isinstance(path, (str, os.PathLike)):
            write_file(Path(path), "save: the ETRecord", self._write)
        else:
            self._write(path)

    def copy(self) -> ETRecord:
        """Another record with the same programs, without what belongs to one program file."""
        return ETRecord(
            self.exported_program, self.export_graph_id, self.edge_dialect_program, self.graph_map
        )

    def add_exported_program(
        self, exported_program: ExportedProgram | Mapping[str, ExportedProgram] | None
    ) -> None:
        """The captured program: of "forward", where there are several.

        Raises:
            ExportError: there is one already.
        """
        if self.exported_program is not None or self.export_graph_id is not None:
            raise ExportError(
                "Exported program already exists in the ETRecord. Cannot add exported program when it "
                "already exists."
            )
        if isinstance(exported_program, Mapping):
            exported_program = exported_program.get(DEFAULT_METHOD)
        if exported_program is not None:
            self.exported_program = exported_program
            self.export_graph_id = id(exported_program.graph)

    def add_edge_dialect_program(self, edge_dialect_program: Any) -> None:
        """The edge programs of a manager, or of what `capture` gave, as they are now: later stages may
        change theirs.

        Raises:
            ExportError: there are some already.
            TypeError: no manager, and no captured program.
        """
        if self.edge_dialect_program is not None:
            raise ExportError(
                "Edge dialect program already exists in the ETRecord. Cannot add edge dialect program when "
                "it already exists."
            )
        programs = _programs_of(edge_dialect_program, "edge_dialect_program")
        kept = {name: copy_with_own_state(program) for name, program in programs.items()}
        self.edge_dialect_program = next(iter(kept.values())) if len(kept) == 1 else kept
        if self.exported_program is not None and DEFAULT_METHOD in kept:
            # Stages work on copies of the captured graph: what their nodes call it is what leads back to it.
            stated = graph_id_in(self.exported_program, kept[DEFAULT_METHOD])
            self.export_graph_id = stated if stated is not None else self.export_graph_id

    def add_executorch_program(self, executorch_program: ExecutorchProgramManager | BundledProgram) -> None:
        """The maps of a program; of a bundled one its test cases too.

        Raises:
            ExportError: there are some already, or a case has no expected outputs.
        """
        kept = (*(getattr(self, f"_{name}") for name in (*_MAPS, *_VALUES)),)
        if any(each is not None for each in kept):
            raise ExportError(
                "Executorch program data already exists in the ETRecord. Cannot add executorch program data "
                "when it already exists."
            )
        manager: Any = executorch_program
        if isinstance(executorch_program, BundledProgram):
            manager = executorch_program.executorch_program
            self.update_reference_outputs(executorch_program)
            self.update_representative_inputs(executorch_program)
        self._debug_handle_map = manager.debug_handle_map
        self._delegate_map = manager.delegate_map
        self._instruction_id_to_num_outs_map = manager.instruction_id_to_num_outs_map

    def add_extra_export_modules(self, extra_recorded_export_modules: Mapping[str, Any]) -> None:
        """Further programs by name: captured ones, or managers of edge programs.

        Raises:
            ExportError: a name is one of the record's own.
            TypeError: another kind of object.
        """
        self.graph_map = {} if self.graph_map is None else self.graph_map
        for name, given in extra_recorded_export_modules.items():
            if any(reserved in name for reserved in _RESERVED):
                raise ExportError(
                    f"The name {name} provided in the extra_recorded_export_modules dict is a reserved name "
                    "in the ETRecord namespace."
                )
            for method, program in _programs_of(given, f"extra_recorded_export_modules[{name!r}]").items():
                self.graph_map[f"{name}/{method}"] = program

    def update_representative_inputs(self, representative_inputs: Sequence[Any] | BundledProgram) -> None:
        """The inputs with which the reference of a comparison is computed: a flat list, or those of the first
        case of "forward".

        Raises:
            ExportError: "forward" has no case.
        """
        if isinstance(representative_inputs, BundledProgram):
            self._representative_inputs = _case_inputs(representative_inputs)
        else:
            self._representative_inputs = list(representative_inputs)

    def update_reference_outputs(
        self, reference_outputs: Mapping[str, list[Any]] | list[Any] | BundledProgram
    ) -> None:
        """The outputs that cases should have, by method; a list is that of "forward".

        Raises:
            ExportError: a case has no expected outputs.
        """
        if isinstance(reference_outputs, BundledProgram):
            self._reference_outputs = _case_outputs(reference_outputs)
        elif isinstance(reference_outputs, list):
            self._reference_outputs = {DEFAULT_METHOD: reference_outputs}
        else:
            self._reference_outputs = dict(reference_outputs)

    def _write(self, file: IO[bytes]) -> None:
        with ZipFile(file, "w") as archive:
            archive.writestr(_IDENTIFIER, "")
            if self.exported_program is not None:
                _write_program(archive, _EXPORTED, self.exported_program)
            edge = self.edge_dialect_program
            by_method = edge if isinstance(edge, dict) else {DEFAULT_METHOD: edge}
            for method, program in by_method.items():
                if program is not None:
                    _write_program(archive, f"{_EDGE}/{method}", program)
            for name, program in (self.graph_map or {}).items():
                _write_program(archive, name if "/" in name else f"{name}/{DEFAULT_METHOD}", program)
            for name in _MAPS:
                kept = getattr(self, f"_{name}")
                if kept is not None:
                    archive.writestr(name, json.dumps(kept))
            for name in _VALUES:
                kept = getattr(self, f"_{name}")
                if kept is not None:
                    buffer = io.BytesIO()
                    torch.save(kept, buffer)
                    archive.writestr(name, buffer.getvalue())
            if self.export_graph_id is not None:
                archive.writestr(_GRAPH_ID, json.dumps(self.export_graph_id))


def generate_etrecord(
    et_record: str | os.PathLike[str] | IO[bytes],
    edge_dialect_program: Any,
    executorch_program: ExecutorchProgramManager | BundledProgram,
    exported_program: ExportedProgram | Mapping[str, ExportedProgram] | None = None,
    extra_recorded_export_modules: Mapping[str, Any] | None = None,
) -> None:
    """Writes the record of an export: its edge programs (a manager from before delegation), what
    `to_executorch` made of them, and what else is given.

    Raises:
        ExportError, TypeError: those of the record's methods.
        OSError: the file cannot be written.
    """
    record = ETRecord()
    record.add_exported_program(exported_program)
    record.add_edge_dialect_program(edge_dialect_program)
    record.add_executorch_program(executorch_program)
    if extra_recorded_export_modules is not None:
        record.add_extra_export_modules(extra_recorded_export_modules)
    record.save(et_record)


def parse_etrecord(etrecord_path: str | os.PathLike[str] | IO[bytes]) -> ETRecord:
    """The record in a file that this package or ExecuTorch wrote.

    Raises:
        ExportError: the file is no record, or a damaged one.
        OSError: the file cannot be read.
    """
    try:
        with ZipFile(etrecord_path) as archive:
            return _read(archive)
    except BadZipFile:
        raise ExportError("Invalid etrecord file passed in.", expected="a ZIP file") from None


def _read(archive: ZipFile) -> ETRecord:
    names = archive.namelist()
    if _IDENTIFIER not in names:
        raise ExportError(
            "ETRecord identifier missing from etrecord file passed in. Either an invalid file was passed in "
            "or the file is corrupt.",
            expected=f"an entry {_IDENTIFIER}",
        )
    try:
        found: dict[str, Any] = {
            name: json.loads(archive.read(name)) for name in (*_MAPS, _GRAPH_ID) if name in names
        }
        for name in _VALUES:
            if name in names:
                found[name] = torch.load(io.BytesIO(archive.read(name)), weights_only=True)
        programs = {
            name: _read_program(archive, name)
            for name in names
            if all(f"{name}_{part}" in names for part in _PARTS)
        }
    except ExportError:
        raise
    except Exception as error:  # whatever torch makes of bytes that are not its own
        raise ExportError(f"the ETRecord file is damaged: {error}") from error
    edge = {
        name.removeprefix(_EDGE).removeprefix("/") or DEFAULT_METHOD: program
        for name, program in programs.items()
        if name == _EDGE or name.startswith(f"{_EDGE}/")
    }
    return ETRecord(
        exported_program=programs.get(_EXPORTED),
        export_graph_id=found.get(_GRAPH_ID, 0),
        edge_dialect_program=next(iter(edge.values())) if len(edge) == 1 else edge or None,
        graph_map={
            name: program
            for name, program in programs.items()
            if name != _EXPORTED and name.partition("/")[0] != _EDGE
        },
        **{f"_{name}": found.get(name) for name in (*_MAPS, *_VALUES)},
    )


def _write_program(archive: ZipFile, name: str, program: ExportedProgram) -> None:
    """In ExecuTorch's form; programs with delegates in this package's."""
    try:
        artifact = to_executorch_form(program)
    except ExportError:
        artifact = serialize(program)
    archive.writestr(name, artifact.exported_program)
    for part in _PARTS:
        archive.writestr(f"{name}_{part}", getattr(artifact, part))


def _read_program(archive: ZipFile, name: str) -> ExportedProgram:
    parts = (archive.read(f"{name}_{part}") for part in _PARTS)
    artifact = SerializedArtifact(archive.read(name), *parts)
    stated = json.loads(artifact.exported_program)
    is_own = isinstance(stated, dict) and "pteron" in stated
    return deserialize(artifact) if is_own else from_executorch_form(artifact)


def graph_id_in(captured: ExportedProgram, edge: ExportedProgram) -> int | None:
    """The number by which nodes of `edge` call the graph that they came from; None where none did."""
    known = {(node.name, str(node.target)) for node in captured.graph.nodes if node.op == "call_function"}
    for node in edge.graph.nodes:
        origins = node.meta.get("from_node") or []
        found = None
        while origins:
            if (origins[-1].name, str(origins[-1].target)) in known:
                found = origins[-1].graph_id
            origins = origins[-1].from_node
        if found is not None:
            return int(found)
    return None


def _programs_of(given: Any, where: str) -> dict[str, ExportedProgram]:
    if isinstance(given, EdgeProgramManager):
        return {name: given.exported_program(name) for name in sorted(given.methods)}
    # What `exir.capture` gives, whose module is above those that make records, has its program inside.
    program = getattr(given, "exported_program", given)
    if isinstance(program, ExportedProgram):
        return {DEFAULT_METHOD: program}
    raise TypeError(
        f"{where}: expected an EdgeProgramManager or an ExportedProgram, got {type(given).__name__}"
    )


def _case_inputs(bundle: BundledProgram) -> list[Any] | None:
    for suite in bundle.method_test_suites:
        if suite.method_name == DEFAULT_METHOD:
            if not suite.test_cases:
                raise ExportError(f"method {DEFAULT_METHOD!r} has no test case to take inputs from")
            return list(suite.test_cases[0].inputs)
    return None


def _case_outputs(bundle: BundledProgram) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for suite in bundle.method_test_suites:
        for case in suite.test_cases:
            if not case.expected_outputs:
                raise ExportError(
                    f"Missing at least one set of expected outputs for method {suite.method_name}.",
                    method=suite.method_name,
                )
            found.setdefault(suite.method_name, []).append(case.expected_outputs)
    return found

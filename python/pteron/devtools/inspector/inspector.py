"""`Inspector`: an ETDump, in terms of the model."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pteron._native import Program
from pteron.devtools.data_frames import pandas_or_error
from pteron.devtools.etdump.flatbuffer import read_etdump
from pteron.devtools.inspector.comparators import NumericalComparatorBase, comparator_of
from pteron.devtools.inspector.event import Event
from pteron.devtools.inspector.event_block import EventBlock, Reading, event_blocks, resolved
from pteron.devtools.inspector.node_table import ProgramTable, associate, node_table
from pteron.devtools.inspector.numeric_gap import paired, runtime_outputs
from pteron.devtools.inspector.time_scale import TimeScale, calculate_time_scale_factor
from pteron.devtools.text_table import text_table

if TYPE_CHECKING:
    from pteron.devtools.etrecord import ETRecord

_log = logging.getLogger(__name__)

EDGE_GRAPH = "edge_dialect_graph_module"
_EXPORTED, _EDGE = "exported_program", "edge_dialect_exported_program"
_NOT_PRINTED = ("raw", "delegate_debug_identifier", "stack_traces", "module_hierarchy", "debug_data")


class Inspector:
    """The events of an ETDump, with the operators, modules and lines of the model where an ETRecord or the
    program says them. `event_blocks`: the runs, those that did the same together.
    """

    def __init__(
        self,
        etdump_path: str | os.PathLike[str] | None = None,
        etdump_data: bytes | None = None,
        etrecord: ETRecord | str | os.PathLike[str] | None = None,
        source_time_scale: TimeScale = TimeScale.NS,
        target_time_scale: TimeScale = TimeScale.MS,
        debug_buffer_path: str | os.PathLike[str] | None = None,
        delegate_metadata_parser: Callable[[list[Any]], Any] | None = None,
        delegate_time_scale_converter: Callable[[Any, Any], Any] | None = None,
        enable_module_hierarchy: bool = False,
        reference_graph_name: str = EDGE_GRAPH,
        *,
        debug_buffer: bytes | None = None,
        program: Program | None = None,
        method: str = "forward",
    ) -> None:
        """Reads an ETDump, from its path or its bytes.

        Args:
            etdump_path: path of the file; or `etdump_data`, its bytes.
            etdump_data: see there.
            etrecord: the record of the export, or the path of one.
            source_time_scale: unit of the times in the file; of both runtimes it is nanoseconds.
            target_time_scale: unit of the times that are shown.
            debug_buffer_path: path of the file with the bytes of values.
            delegate_metadata_parser: gives a list or a dict of columns for a list of delegates' metadata.
            delegate_time_scale_converter: (name of an event, time) → time in the unit shown, for parts of
                delegates. Without it they are taken to be in `source_time_scale`.
            enable_module_hierarchy: accepted; the modules of events are always there.
            reference_graph_name: the graph of the record that says the operators: the edge programs, or the
                name of a further one.
            debug_buffer: the bytes of values, instead of their path.
            program: the program that ran: says operators, modules and lines without an ETRecord.
            method: which of its methods.

        Raises:
            EtdumpError: the file is damaged, or the debug buffer is not its own.
            ExportError: the ETRecord is damaged.
            ValueError: no file, two of them, or no such graph; one unit is cycles and the other is not.
        """
        if (etdump_path is None) == (etdump_data is None):
            raise ValueError("Expecting exactly one of etdump_path or etdump_data to be specified.")
        if (source_time_scale is TimeScale.CYCLES) != (target_time_scale is TimeScale.CYCLES):
            raise ValueError(
                "For TimeScale in cycles both the source and target time scale have to be in cycles."
            )
        data = Path(etdump_path).read_bytes() if etdump_path is not None else etdump_data or b""
        if debug_buffer_path is not None:
            debug_buffer = Path(debug_buffer_path).read_bytes()
        self._etrecord = _record(etrecord)
        self._method = method
        self._reference_outputs: dict[str, list[Any]] = {}
        reading = Reading(
            source_time_scale,
            target_time_scale,
            calculate_time_scale_factor(source_time_scale, target_time_scale),
            debug_buffer,
            delegate_metadata_parser,
            delegate_time_scale_converter,
        )
        self._target_time_scale = target_time_scale
        self.event_blocks: list[EventBlock] = event_blocks(read_etdump(data), reading)
        if self._etrecord is not None:
            self._use_record(self._etrecord, reference_graph_name)
        elif program is not None:
            table = ProgramTable(program, method)
            for event in resolved(self.event_blocks, table.handle_map, table.delegate_map, None):
                table.associate(event)

    def __repr__(self) -> str:
        blocks = ", ".join(f"{block.name}: {len(block.events)} events" for block in self.event_blocks)
        return f"<Inspector of {blocks or 'no runs'}>"

    def _use_record(self, record: ETRecord, graph_name: str) -> None:
        handles, delegates, counts = (
            (getattr(record, name) or {}).get(self._method)
            for name in ("_debug_handle_map", "_delegate_map", "_instruction_id_to_num_outs_map")
        )
        graphs = self._graphs(record)
        if graph_name not in graphs:
            raise ValueError(
                f"the ETRecord has no graph {graph_name!r}; it has {', '.join(graphs) or 'none'}"
            )
        table = node_table(graphs[graph_name].graph_module)
        for event in resolved(self.event_blocks, handles, delegates, counts):
            associate(event, table)
        self._reference_outputs = record._reference_outputs or {}
        for block in self.event_blocks:
            outputs = self._reference_outputs.get(self._method, [])
            if block.bundled_input_index is not None and block.bundled_input_index < len(outputs):
                block.reference_output = outputs[block.bundled_input_index]

    def _graphs(self, record: ETRecord) -> dict[str, Any]:
        found = dict(record.graph_map or {})
        edge = record.edge_dialect_program
        if isinstance(edge, dict):
            edge = edge.get(self._method)
        if edge is not None:
            found[EDGE_GRAPH] = edge
        return found

    def to_dataframe(self, include_units: bool = True, include_delegate_debug_data: bool = False) -> Any:
        """All events as a pandas data frame, a row each; `include_units`: names of columns of times end in
        the unit.

        Raises:
            ImportError: pandas is not installed.
        """
        pd = pandas_or_error("Inspector.to_dataframe")
        frames = [each.to_dataframe(include_units, include_delegate_debug_data) for each in self.event_blocks]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def print_data_tabular(
        self,
        file: IO[str] | None = None,
        include_units: bool = True,
        include_delegate_debug_data: bool = False,
    ) -> None:
        """Prints the events as a table, to standard output unless a file is given. The spans that the runtime
        lays around operators are left out.
        """
        rows = self._printed_rows(include_units, include_delegate_debug_data)
        headings = list(rows[0]) if rows else ["event_block_name", "event_name"]
        cells = [["" if value is None else _cell(value) for value in row.values()] for row in rows]
        print(text_table(headings, cells), file=file if file is not None else sys.stdout, end="")

    def save_data_to_tsv(
        self, file: IO[str], include_units: bool = True, include_delegate_debug_data: bool = False
    ) -> None:
        """Writes the events that `print_data_tabular` prints as tab-separated values.

        Raises:
            ImportError: pandas is not installed.
        """
        frame = self.to_dataframe(include_units, include_delegate_debug_data)
        shown = frame.drop(columns=[each for each in _NOT_PRINTED if each in frame])
        if "event_name" in shown:
            shown = shown[~shown["event_name"].str.contains("OPERATOR_CALL")]
        shown.reset_index(drop=True).to_csv(file, sep="\t")

    def _printed_rows(self, include_units: bool, include_delegate_debug_data: bool) -> list[dict[str, Any]]:
        units = f" ({self._target_time_scale.value})" if include_units else ""
        rows = []
        for block in self.event_blocks:
            for event in block.events:
                if "OPERATOR_CALL" in event.name:
                    continue
                columns = event.asdict(units).items()
                row = {name: value for name, value in columns if name not in _NOT_PRINTED}
                if include_delegate_debug_data:
                    row["delegate_debug_metadata"] = event.delegate_debug_metadatas or None
                rows.append({"event_block_name": block.name, **row})
        return rows

    def find_total_for_module(self, module_name: str) -> float:
        """The sum of the mean times of all events in a module, in the unit shown: a name of the model's
        module path, or a part of the name by which `torch.export` knows it. Spans around operators do not
        count.
        """
        total = 0.0
        for event in (event for block in self.event_blocks for event in block.events):
            if event.name == "OPERATOR_CALL" or event.perf_data is None:
                continue
            if any(_is_in(module_name, modules) for modules in event.module_hierarchy.values()):
                total += event.perf_data.avg
        return total

    def get_op_list(self, event_block: str, show_delegated_ops: bool | None = True) -> dict[str, list[Event]]:
        """Operator → the events of a block that compute it."""
        found: dict[str, list[Event]] = {}
        for event in (
            event for block in self.event_blocks if block.name == event_block for event in block.events
        ):
            if event.is_delegated_op and not show_delegated_ops:
                continue
            for operator in dict.fromkeys(event.op_types):
                found.setdefault(operator, []).append(event)
        return found

    def get_exported_program(self, graph: str | None = None) -> Any:
        """A program of the ETRecord: the edge programs, or the further one of a name; None without."""
        if self._etrecord is None:
            _log.warning("there is no ETRecord, so there is no exported program")
            return None
        if graph is None:
            return self._etrecord.edge_dialect_program
        return (self._etrecord.graph_map or {}).get(graph)

    def calculate_numeric_gap(
        self,
        distance: str | NumericalComparatorBase,
        disable_debug_handle_valdiation: bool = False,
        reference_graph: str | None = None,
    ) -> Any:
        """How far each operator of the run is from the same operator of the model, computed by PyTorch with
        the representative inputs of the ETRecord: a pandas data frame.

        Args:
            distance: "MSE", "L1", "SNR", or a comparator.
            disable_debug_handle_valdiation: take the captured program although an edge operator comes from
                none of its operators.
            reference_graph: "exported_program", "edge_dialect_exported_program", or the name of a further
                program of the record; None: the captured program where it can be had, else the edge program.

        Raises:
            ValueError: no record, no inputs in it, no such graph, no such distance, or no values in the
                ETDump.
            ImportError: pandas is not installed.
        """
        comparator = comparator_of(distance, self)
        module = self._reference(reference_graph, disable_debug_handle_valdiation)
        from pteron.devtools.inspector import intermediate_outputs as reference

        assert self._etrecord is not None
        inputs = self._etrecord._representative_inputs
        if not inputs:
            raise ValueError(
                "the ETRecord has no representative inputs; update_representative_inputs gives it some"
            )
        outputs, names = runtime_outputs(self.event_blocks)
        if not any(map(_has_tensor, outputs.values())):
            raise ValueError(
                "the ETDump has no values: record with a debug buffer, and pass debug_buffer_path"
            )
        expected = reference.IntermediateOutputCapturer(module).run_and_capture(*inputs)
        frame = comparator.compare(paired(expected, outputs), reference.operator_names(module), names)
        if len(frame):
            traces = reference.stack_traces(module)
            frame["stacktraces"] = [{name: traces.get(name) for name in ops} for ops in frame["aot_ops"]]
        return frame

    def _reference(self, name: str | None, takes_unmatched: bool) -> Any:
        """The graph module of the reference, whose nodes have debug handles."""
        record = self._etrecord
        if record is None:
            raise ValueError("a numeric gap needs an ETRecord")
        from pteron.devtools.inspector.intermediate_outputs import propagate_handles
        from pteron.exir.backend.program_copy import deep_copy

        graphs = self._graphs(record)
        if name in (None, _EXPORTED):
            captured, edge = record.exported_program, graphs.get(EDGE_GRAPH)
            if captured is not None and edge is not None:
                copied = deep_copy(captured)
                if propagate_handles(copied.graph_module, edge.graph_module, needs_all=not takes_unmatched):
                    return copied.module()
            if name == _EXPORTED:
                raise ValueError(
                    "the ETRecord has no captured program, or an edge operator comes from none of its "
                    "operators; disable_debug_handle_valdiation=True compares the others"
                )
        if name in (None, _EDGE):
            found = graphs.get(EDGE_GRAPH)
        else:
            found = graphs.get(str(name) if "/" in str(name) else f"{name}/forward")
        if found is None:
            raise ValueError(f"Reference graph {name!r} not found. Available: {[_EXPORTED, _EDGE, *graphs]}")
        return deep_copy(found).module()


def _record(given: Any) -> Any:
    if given is None:
        return None
    from pteron.devtools.etrecord import ETRecord, parse_etrecord

    if isinstance(given, ETRecord):
        return given
    if isinstance(given, (str, os.PathLike)):
        return parse_etrecord(given)
    raise TypeError(f"etrecord: expected an ETRecord or a path, got {type(given).__name__}")


def _is_in(name: str, modules: Any) -> bool:
    for key, value in (modules or {}).items():
        path = value[0] if isinstance(value, (tuple, list)) and value else value
        if name in key or name == path:
            return True
    return False


def _has_tensor(output: tuple[Any, int]) -> bool:
    flat = [each for value in output[0] for each in (value if isinstance(value, list) else [value])]
    return any(each is not None for each in flat)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value[0]) if isinstance(value, list) and len(value) == 1 else str(value)

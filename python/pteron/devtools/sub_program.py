"""Programs of some instructions of another one, with the values that they read as inputs."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import pteron
from pteron.devtools.convert import move_in
from pteron.devtools.data_flow import LISTS, DataFlow
from pteron.devtools.program_file import PACKED_KEY, ProgramFile, named, new, read_program
from pteron.devtools.recorded_run import RecordedRun
from pteron.devtools.sources import DEBUG_KEY

INTERFACE_KEY = "pteron.interface"


@dataclass(frozen=True)
class SubProgram:
    """The file of a part of a method, and inputs by name, in order."""

    content: bytes
    inputs: dict[str, npt.NDArray[Any]]
    instructions: tuple[int, ...]


@dataclass
class _Border:
    """What a part needs: tensors from outside with the execution that reads them first; buffers among them;
    tensors that must stay where the memory plan puts them; results.
    """

    inputs: dict[int, int] = field(default_factory=dict)
    state: dict[int, int] = field(default_factory=dict)
    placed: set[int] = field(default_factory=set)
    outputs: list[int] = field(default_factory=list)


class SubPrograms:
    """Parts of one method, of which every value is known from a run as the file has it.

    `program` is what `content` was loaded as, with its data files; the run takes place in a runtime of its
    own with all rewrites switched off, unless `plain` is such a program already.

    Raises:
        PteronError: those of the run.
        ValueError: tensors of data files are missing.
    """

    def __init__(
        self,
        content: bytes,
        program: pteron.Program,
        method: str,
        inputs: Sequence[Any],
        plain: pteron.Runtime | None = None,
    ) -> None:
        file = read_program(program, content)
        file.drop_named(PACKED_KEY)
        move_in(file, program)
        whole = file.to_bytes()
        runtime = plain or pteron.Runtime(disabled_rules=["all"])
        run = pteron.load(whole, runtime=runtime)
        self._file = read_program(run, whole)
        self._method = method
        self._names = [spec.name for spec in run.inputs(method)]
        self._given = list(inputs)
        self._plan = self._file.plan(method)
        self.run = RecordedRun(self._file, run, method, inputs)
        self._flow = DataFlow(self._plan, self.run)
        #: Instructions that stay together: a loop or a branch is one unit.
        self.units: tuple[tuple[int, ...], ...] = tuple(self._units())

    def units_of(self, instructions: Collection[int]) -> list[int]:
        """The units that have any of these instructions."""
        wanted = set(instructions)
        return [number for number, unit in enumerate(self.units) if wanted.intersection(unit)]

    def cut(self, units: Collection[int]) -> SubProgram | None:
        """The program of some units. None where no program has their effect, because they read memory of
        which others write parts in between, or where an input is not known: a name without a shape of its
        own, or an element type that NumPy has not.
        """
        kept = self._closed({at for unit in units for at in self.units[unit]})
        border = self._border(kept)
        if border is None or not border.outputs:
            return None
        wanted = [*border.inputs.items(), *border.state.items()]
        try:
            found = self.run.values_at(wanted)
        except ValueError:
            return None
        values = {at: found[at, number] for at, number in wanted}
        return self._written(sorted(kept), border, values)

    def _units(self) -> Iterator[tuple[int, ...]]:
        (chain,) = self._plan.chains
        count = len(chain.instructions)
        # Each instruction with the last one that a jump ties it to.
        reach = list(range(count))
        for at, instruction in enumerate(chain.instructions):
            to = getattr(instruction.instr_args, "destination_instruction", None)
            if to is not None:
                first, last = min(at, to), max(at, min(to, count) - 1)
                reach[first] = max(reach[first], last)
        start = end = 0
        for at in range(count):
            end = max(end, reach[at])
            if at == end:
                yield tuple(range(start, end + 1))
                start = end = end + 1

    def _closed(self, kept: set[int]) -> set[int]:
        """With the instructions that compute numbers for these: sizes, counters of loops."""
        writers: dict[int, list[int]] = {}
        for at, effects in enumerate(self._flow.effects):
            if effects.scalar is not None:
                writers.setdefault(effects.scalar, []).append(at)
        todo = list(kept)
        while todo:
            for value in self._flow.leaves(self._flow.effects[todo.pop()].reads):
                for writer in writers.get(value, ()):
                    unit = next(unit for unit in self.units if writer in unit)
                    todo += [at for at in unit if at not in kept]
                    kept.update(unit)
        return kept

    def _border(self, kept: set[int]) -> _Border | None:
        found = _Border()
        flow, executions = self._flow, self.run.executions
        origin: dict[int, int] = {}
        used: set[tuple[int, int]] = set()
        numbers = [n for n, execution in enumerate(executions) if execution.instruction in kept]
        for number in numbers:
            for read in flow.reads[number]:
                is_inside = read.writer >= 0 and executions[read.writer].instruction in kept
                if is_inside and not read.is_whole:
                    return None
                if is_inside:
                    used.add((read.writer, read.written))
                    if read.written != read.value:
                        found.placed |= {read.value, read.written}
                elif origin.setdefault(read.value, read.writer) != read.writer:
                    return None
                elif self.run.method.tensors[read.value].is_state:
                    found.state.setdefault(read.value, number)
                else:
                    found.inputs.setdefault(read.value, number)
        last = {at: number for number in numbers for at in executions[number].written}
        for at in found.inputs:
            if at in last:
                found.placed.add(at)
        if not self._may_stay(found, numbers):
            return None
        results = [at for at, number in last.items() if (number, at) not in used]
        self._choose_outputs(found, results or list(executions[numbers[-1]].written), last, numbers)
        return found

    def _may_stay(self, found: _Border, numbers: list[int]) -> bool:
        """Whether nothing of the part writes over an input that stays in planned memory before it is read."""
        fixed = [at for at in found.inputs if at in found.placed]
        for at in fixed:
            if any(other != at and self._flow.overlaps(at, other) for other in fixed):
                return False
            for number in numbers:
                if number >= found.inputs[at]:
                    break
                if any(self._flow.overlaps(at, w) for w in self.run.executions[number].written):
                    return False
        return True

    def _choose_outputs(
        self, found: _Border, results: list[int], last: dict[int, int], numbers: list[int]
    ) -> None:
        """Results that nothing writes over; those with no second name get memory of their own."""
        for at in results:
            if self.run.method.tensors[at].is_state or at in found.inputs or at in found.outputs:
                continue
            is_view = self._flow.is_view(self.run.executions[last[at]].instruction)
            is_lost = (at in found.placed or is_view) and any(
                number > last[at] and (is_view or self._flow.overlaps(at, other))
                for number in numbers
                for other in self.run.executions[number].written
                if other != at
            )
            if not is_lost:
                found.outputs.append(at)

    def _written(self, kept: list[int], border: _Border, values: dict[int, npt.NDArray[Any]]) -> SubProgram:
        numbers = [
            at
            for at in self._plan.inputs
            if not self._flow.is_tensor(at)
            and any(at in self._flow.leaves(self._flow.effects[i].named) for i in kept)
        ]
        inputs = [*border.inputs, *numbers]
        part = _Part(self._file, self._plan, kept, inputs, border, values)
        names = dict(zip(self._plan.inputs, self._names, strict=True))
        given = dict(zip(self._plan.inputs, self._given, strict=True))
        labels = [names.get(at, f"value{at}") for at in inputs]
        arrays = [values[at] if at in values else np.asarray(given[at]) for at in inputs]
        content = part.to_bytes(self._method, labels, [f"value{at}" for at in border.outputs])
        return SubProgram(content, dict(zip(labels, arrays, strict=True)), tuple(kept))


class _Part:
    """The objects of a part, numbered anew."""

    def __init__(
        self,
        file: ProgramFile,
        plan: Any,
        kept: list[int],
        inputs: list[int],
        border: _Border,
        values: dict[int, npt.NDArray[Any]],
    ) -> None:
        self._file, self._old, self._kept = file, plan, kept
        (chain,) = plan.chains
        calls = [chain.instructions[at].instr_args for at in kept]
        used = {at for call in calls for at in _members(plan, call)} | {*inputs, *border.outputs}
        self._place = {old: at for at, old in enumerate(sorted(used))}
        self._operators = sorted({call.op_index for call in calls if hasattr(call, "op_index")})
        self._delegates = sorted({call.delegate_index for call in calls if hasattr(call, "delegate_index")})
        self._buffers: dict[str, list[Any]] = {
            "constant_buffer": [new("Buffer", storage=b"")],
            "mutable_data": [new("Buffer", storage=b"")],
        }
        self._stored: dict[int, int] = {}
        free = {*inputs, *border.outputs} - border.placed
        self._values = [
            new("EValue", val=self._value(old, old in free, values if old in border.state else {}))
            for old in sorted(used)
        ]
        self._calls = [new("Instruction", instr_args=self._call(call)) for call in calls]
        self._inputs = [self._place[at] for at in inputs]
        self._outputs = [self._place[at] for at in border.outputs]

    def to_bytes(self, method: str, inputs: list[str], outputs: list[str]) -> bytes:
        """The file; `inputs` and `outputs` are names."""
        old = self._old
        plan = new(
            "ExecutionPlan",
            **{
                **vars(old),
                "container_meta_type": new("ContainerMetadata", encoded_inp_str="", encoded_out_str=""),
                "values": self._values,
                "inputs": self._inputs,
                "outputs": self._outputs,
                "chains": [new("Chain", inputs=[], outputs=[], instructions=self._calls, stacktrace=None)],
                "operators": [old.operators[at] for at in self._operators],
                "delegates": [self._delegate(number, at) for number, at in enumerate(self._delegates)],
            },
        )
        table = new(
            "Program",
            version=0,
            execution_plan=[plan],
            backend_delegate_data=[
                self._file.table.backend_delegate_data[old.delegates[at].processed.index]
                for at in self._delegates
            ],
            named_data=list(self._named(method, inputs, outputs)),
            **self._buffers,
        )
        return self._file.with_table(table).to_bytes()

    def _value(self, old: int, is_free: bool, state: dict[int, npt.NDArray[Any]]) -> Any:
        value = self._old.values[old].val
        kind = type(value).__name__
        if kind in LISTS:
            return new(kind, items=[self._place[at] if at >= 0 else at for at in value.items])
        if kind != "Tensor":
            return value
        tensor = copy.copy(value)
        if is_free:
            tensor.allocation_info, tensor.data_buffer_idx, tensor.extra_tensor_info = None, 0, None
        elif tensor.data_buffer_idx:
            tensor.data_buffer_idx = self._store(tensor, state.get(old))
        return tensor

    def _store(self, tensor: Any, content: npt.NDArray[Any] | None) -> int:
        kind = "constant_buffer" if tensor.allocation_info is None else "mutable_data"
        buffers = self._buffers[kind]
        if content is not None:
            laid = np.ascontiguousarray(content.transpose(list(tensor.dim_order)))
            buffers.append(new("Buffer", storage=laid.tobytes()))
            return len(buffers) - 1
        old = tensor.data_buffer_idx
        if kind == "mutable_data":
            buffers.append(self._file.table.mutable_data[old])
            return len(buffers) - 1
        if old not in self._stored:
            self._stored[old] = len(buffers)
            buffers.append(self._file.table.constant_buffer[old])
        return self._stored[old]

    def _call(self, call: Any) -> Any:
        members = dict(vars(call))
        for name in ("move_from", "move_to", "cond_value_index", "value_index"):
            if name in members:
                members[name] = self._place[members[name]]
        if "args" in members:
            members["args"] = [self._place[at] for at in members["args"]]
        if "op_index" in members:
            members["op_index"] = self._operators.index(members["op_index"])
        if "delegate_index" in members:
            members["delegate_index"] = self._delegates.index(members["delegate_index"])
        if "destination_instruction" in members:
            to = members["destination_instruction"]
            members["destination_instruction"] = sum(at < to for at in self._kept)
        return new(type(call).__name__, **members)

    def _delegate(self, number: int, old: int) -> Any:
        members = dict(vars(self._old.delegates[old]))
        members["processed"] = new("BackendDelegateDataReference", location=0, index=number)
        return new("BackendDelegate", **members)

    def _named(self, method: str, inputs: list[str], outputs: list[str]) -> Iterator[Any]:
        debug = []
        for one in self._file.table.named_data:
            if one.key == INTERFACE_KEY:
                continue
            if one.key == DEBUG_KEY:
                debug = [named(one.key, self._debug(bytes(one.data), method), one.alignment)]
            elif self._delegates:
                key = one.key
                for number, old in enumerate(self._delegates):
                    if one.key.startswith("pteron.delegate.") and key.endswith(f"@{method}/{old}"):
                        key = f"{key.removesuffix(f'@{method}/{old}')}@{method}/{number}"
                        break
                yield named(key, one.data, one.alignment)
        yield named(INTERFACE_KEY, self._interface(method, inputs, outputs), 16)
        yield from debug

    def _interface(self, method: str, inputs: list[str], outputs: list[str]) -> bytes:
        try:
            old = next(n for n in self._file.table.named_data if n.key == INTERFACE_KEY)
            known = json.loads(bytes(old.data))
        except (StopIteration, ValueError):
            known = {}
        before = known.get("methods", {}).get(method, {})
        entry: dict[str, Any] = {
            "inputs": [self._io(at, name) for at, name in zip(self._inputs, inputs, strict=True)],
            "outputs": [self._io(at, name) for at, name in zip(self._outputs, outputs, strict=True)],
        }
        for name in ("delegate_outputs", "delegate_buffers"):
            facts = before.get(name, {})
            kept = {str(n): facts[str(old)] for n, old in enumerate(self._delegates) if str(old) in facts}
            if kept:
                entry[name] = kept
        out = {"version": 1, "methods": {method: entry}}
        if "operators" in known:
            out["operators"] = known["operators"]
        return json.dumps(out, separators=(",", ":")).encode()

    def _io(self, at: int, name: str) -> dict[str, Any]:
        value = self._values[at].val
        if type(value).__name__ != "Tensor":
            return {"name": name}
        if not value.shape_dynamism:
            return {"name": name, "shape": list(value.sizes)}
        dims = [
            {"symbol": f"s{at}_{axis}", "min": 0, "max": extent} for axis, extent in enumerate(value.sizes)
        ]
        return {"name": name, "shape": dims}

    def _debug(self, text: bytes, method: str) -> bytes:
        try:
            data = json.loads(text)
            table = data["methods"][method]
            instructions = [table["instructions"][at] for at in self._kept]
            delegates = table.get("delegates", {})
            table["instructions"] = instructions
            table["delegates"] = {
                str(n): delegates[str(old)] for n, old in enumerate(self._delegates) if str(old) in delegates
            }
            data["methods"] = {method: table}
        except (ValueError, KeyError, TypeError, IndexError):
            return text  # A foreign table: the runtime counts it as absent.
        return json.dumps(data, separators=(",", ":")).encode()


def _members(plan: Any, call: Any) -> Iterator[int]:
    """Values that an instruction names, with the members of lists."""
    names = ("move_from", "move_to", "cond_value_index", "value_index")
    args = [*getattr(call, "args", ()), *(getattr(call, name) for name in names if hasattr(call, name))]
    for at in args:
        yield at
        value = plan.values[at].val
        if type(value).__name__ in LISTS:
            yield from (item for item in value.items if item >= 0)

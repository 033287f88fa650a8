"""Stored weights in another form: as 16-bit floats, in a data file beside the program, or inside again."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron import _native
from pteron._native import Program
from pteron.devtools.program_file import EXTERNAL, IN_FILE, PACKED_KEY, ProgramFile, named, new, written
from pteron.devtools.sources import DEBUG_KEY
from pteron.scalar_types import SCALAR_TYPES

#: What float32 weights can be stored as.
NARROW = ("float16", "bfloat16")
#: Constants of fewer bytes stay as they are: what reads them would cost more.
LEAST_BYTES = 1024
_PLACE = "AllocationDetails"


@dataclass
class Narrowed:
    """What `narrow` did: constants and bytes before and after, those left out by reason, and the largest
    error of a weight, of the largest weight of its tensor.
    """

    constants: int = 0
    before: int = 0
    after: int = 0
    error: float = 0.0
    kept: dict[str, int] = field(default_factory=dict)


def narrow(file: ProgramFile, dtype: str) -> Narrowed:
    """Stores float32 constants as 16-bit floats. A call that reads one gets it widened by `aten::_to_copy`
    before it, which load does once and for all outside of loops. Packs of the weights go.

    Raises:
        ValueError: not one of `NARROW`, or NumPy has it not.
    """
    done = Narrowed()
    changed: dict[int, Any] = {}
    for at, buffer in enumerate(file.table.constant_buffer):
        kinds = {
            tensor.scalar_type
            for plan in file.table.execution_plan
            for tensor in _constants(plan).values()
            if tensor.data_buffer_idx == at
        }
        if kinds != {SCALAR_TYPES["float32"]}:
            continue
        if len(buffer.storage) < LEAST_BYTES:
            done.kept["small"] = done.kept.get("small", 0) + 1
            continue
        wide = np.frombuffer(buffer.storage, np.float32)
        with np.errstate(over="ignore"):
            less = wide.astype(_numpy(dtype))
        back = less.astype(np.float32)
        if not np.array_equal(np.isfinite(back), np.isfinite(wide)):
            done.kept["beyond its range"] = done.kept.get("beyond its range", 0) + 1
            continue
        changed[at] = less
        done.constants += 1
        done.before += wide.nbytes
        done.after += less.nbytes
        done.error = max(done.error, _error(wide, back))
    for at, less in changed.items():
        file.table.constant_buffer[at].storage = less.view(np.uint8).data
    for plan in file.table.execution_plan:
        _widen_before_use(file, plan, set(changed), SCALAR_TYPES[dtype])
    if changed:
        file.drop_named(PACKED_KEY)
    return done


def _error(wide: npt.NDArray[Any], back: npt.NDArray[Any]) -> float:
    finite = np.isfinite(wide)
    largest = float(np.abs(wide[finite]).max(initial=0))
    return float(np.abs(wide[finite] - back[finite]).max(initial=0)) / largest if largest else 0.0


def _numpy(dtype: str) -> Any:
    if dtype not in NARROW:
        raise ValueError(f"weights are stored as {' or '.join(NARROW)}, not as {dtype}")
    if dtype == "float16":
        return np.float16
    try:
        import ml_dtypes
    except ImportError:
        raise ValueError("NumPy has no bfloat16 of its own: pip install ml_dtypes") from None
    return ml_dtypes.bfloat16


def _constants(plan: Any) -> dict[int, Any]:
    """Constants in the file by index of their value."""
    return {
        at: value.val
        for at, value in enumerate(plan.values)
        if type(value.val).__name__ == "Tensor"
        and value.val.data_buffer_idx
        and value.val.allocation_info is None
        and (value.val.extra_tensor_info is None or value.val.extra_tensor_info.location == IN_FILE)
    }


def _widen_before_use(file: ProgramFile, plan: Any, buffers: set[int], dtype: int) -> None:
    """One place is enough for all of them: each is widened right before the call that reads it."""
    stored = {at: t for at, t in _constants(plan).items() if t.data_buffer_idx in buffers}
    if not stored:
        return
    (chain,) = plan.chains
    arena = max(1, len(plan.non_const_buffer_sizes))
    plan.non_const_buffer_sizes += [0] * (arena + 1 - len(plan.non_const_buffer_sizes))
    widen = _Widening(plan, arena, dtype)
    out: list[Any] = []
    places: list[int] = []
    moved: list[int] = []
    for at, instruction in enumerate(chain.instructions):
        places.append(len(out))
        call = instruction.instr_args
        offset = 0
        for value in dict.fromkeys(_read(plan, getattr(call, "args", ()))):
            if value in stored:
                out.append(new("Instruction", instr_args=widen.call(value, stored[value], offset)))
                moved.append(at)
                offset += _padded(4 * int(np.prod(stored[value].sizes)))
        if offset:
            call.args = [widen.member(arg) for arg in call.args]
            widen.forget()
        plan.non_const_buffer_sizes[arena] = max(plan.non_const_buffer_sizes[arena], offset)
        out.append(instruction)
        moved.append(at)
    for at in set(plan.outputs) & set(stored):
        # Nothing reads an output that is a constant: its value must stay the wide one.
        raise ValueError(f"output {plan.outputs.index(at)} of {plan.name!r} is a stored constant")
    places.append(len(out))
    for instruction in out:
        call = instruction.instr_args
        if type(call).__name__ == "JumpFalseCall":
            call.destination_instruction = places[call.destination_instruction]
    chain.instructions, chain.stacktrace = out, _follow(chain.stacktrace, moved)
    for tensor in stored.values():
        tensor.scalar_type = dtype
    _follow_debug(file, plan.name, moved)


class _Widening:
    """Makes calls that widen constants, and the values that they need."""

    def __init__(self, plan: Any, arena: int, dtype: int) -> None:
        self._plan, self._arena = plan, arena
        self._operator = len(plan.operators)
        plan.operators.append(new("Operator", name="aten::_to_copy", overload="out"))
        self._is_blocking = self._value(new("Bool", bool_val=False))
        self._format = self._value(new("Null"))
        self._now: dict[int, int] = {}

    def call(self, at: int, tensor: Any, offset: int) -> Any:
        """The call that widens value `at`."""
        wide = copy.copy(tensor)
        wide.data_buffer_idx, wide.extra_tensor_info = 0, None
        low, high = offset & 0xFFFFFFFF, offset >> 32
        wide.allocation_info = new(
            _PLACE, memory_id=self._arena, memory_offset_low=low, memory_offset_high=high
        )
        self._now[at] = out = self._value(wide)
        return new(
            "KernelCall",
            op_index=self._operator,
            args=[at, self._is_blocking, self._format, out, out],
        )

    def member(self, at: int) -> int:
        """What stands for value `at` in the call: itself, its wide form, or a list with such members."""
        value = self._plan.values[at].val
        if type(value).__name__ not in ("TensorList", "OptionalTensorList"):
            return self._now.get(at, at)
        items = [self._now.get(item, item) for item in value.items]
        if items == value.items:
            return at
        return self._value(type(value)(items=items))

    def forget(self) -> None:
        """The next call widens anew."""
        self._now.clear()

    def _value(self, value: Any) -> int:
        self._plan.values.append(new("EValue", val=value))
        return len(self._plan.values) - 1


def _read(plan: Any, args: Any) -> Iterator[int]:
    """Values that a call names, members of lists too."""
    for at in args:
        value = plan.values[at].val
        if type(value).__name__ in ("TensorList", "OptionalTensorList"):
            yield from (item for item in value.items if item >= 0)
        else:
            yield at


def _padded(nbytes: int) -> int:
    return (nbytes + 63) // 64 * 64


def _follow(table: list[Any] | None, moved: list[int]) -> list[Any] | None:
    return None if table is None else [table[at] if at < len(table) else [] for at in moved]


def _follow_debug(file: ProgramFile, method: str, moved: list[int]) -> None:
    """The debug table has an entry for each instruction: new ones come from where the call comes from."""
    for one in file.table.named_data:
        if one.key != DEBUG_KEY:
            continue
        try:
            data = json.loads(bytes(one.data))
            table = data["methods"][method]
            table["instructions"] = _follow(table["instructions"], moved)
        except (ValueError, KeyError, TypeError):
            continue  # A foreign or damaged table: the runtime counts it as absent, too.
        one.data = json.dumps(data, separators=(",", ":")).encode()


def move_out(file: ProgramFile) -> bytes:
    """Takes the constants out of the program: the bytes of the data file that it needs from then on. Packs of
    the weights go.

    Raises:
        ValueError: there are no constants.
    """
    entries: dict[str, SimpleNamespace] = {}
    for plan in file.table.execution_plan:
        for tensor in _constants(plan).values():
            extra = tensor.extra_tensor_info or _extra()
            key = extra.fully_qualified_name or f"constant.{tensor.data_buffer_idx}"
            layout = SimpleNamespace(
                scalar_type=tensor.scalar_type, sizes=tensor.sizes, dim_order=list(tensor.dim_order)
            )
            data = file.table.constant_buffer[tensor.data_buffer_idx].storage
            # Another view of the same bytes is a tensor of its own.
            base, number = key, 0
            while key in entries and (entries[key].layout, entries[key].data) != (layout, data):
                key, number = f"{base}.{number}", number + 1
            entries[key] = SimpleNamespace(key=key, data=data, alignment=16, layout=layout)
            extra.fully_qualified_name, extra.location = key, EXTERNAL
            tensor.extra_tensor_info, tensor.data_buffer_idx = extra, 0
    if not entries:
        raise ValueError("the program has no constants of its own")
    file.table.constant_buffer = file.table.constant_buffer[:1]
    file.drop_named(PACKED_KEY)
    return written(*_native.layout_data_file(sorted(entries.values(), key=lambda entry: entry.key)))


def _extra() -> Any:
    return new(
        "ExtraTensorInfo",
        mutable_data_segments_idx=0,
        fully_qualified_name=None,
        location=IN_FILE,
        device_type=0,
        device_index=0,
    )


def move_in(file: ProgramFile, program: Program) -> int:
    """Puts what data files hold into the program, which was loaded with them: the number of tensors.

    Raises:
        ValueError: a tensor is in no data file.
    """
    content = program.named_data
    own = {entry.key for entry in file.table.named_data}
    seen: dict[tuple[str, str], int] = {}
    for plan in file.table.execution_plan:
        for value in plan.values:
            extra = getattr(value.val, "extra_tensor_info", None)
            if extra is None or extra.location != EXTERNAL:
                continue
            key = extra.fully_qualified_name
            if key not in content:
                raise ValueError(f"{key!r} is in no data file; name the files with --data")
            kind = "constant_buffer" if value.val.allocation_info is None else "mutable_data"
            buffers = getattr(file.table, kind)
            if (kind, key) not in seen:
                seen[kind, key] = len(buffers)
                buffers.append(new("Buffer", storage=content[key]))
            value.val.data_buffer_idx, extra.location = seen[kind, key], IN_FILE
    used = own | {key for _, key in seen}
    file.table.named_data += [named(key, data, 128) for key, data in content.items() if key not in used]
    file.table.named_data.sort(key=lambda one: one.key == DEBUG_KEY)
    return len(seen)

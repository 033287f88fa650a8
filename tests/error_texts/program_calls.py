"""Programs, data files and bundles that break a rule of their format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

import pteron
from pteron import _native
from tests.support.programs import (
    MethodBuilder,
    add_method,
    assemble,
    build,
    call_tree,
    delegate_method,
    leaf,
    schema,
    tree_text,
)

X = np.zeros((2, 3), np.float32)
HUGE = 1 << 62


def written(edit: Callable[[Any], object], *methods: MethodBuilder) -> Callable[[], object]:
    """The program `x + y`, or of these methods, changed and written."""

    def call() -> None:
        program = assemble(*(methods or [add_method()]))
        edit(program)
        _native.serialize_program(program)

    return call


def loaded(change: Callable[[MethodBuilder], object]) -> Callable[[], object]:
    """The method `x + y` changed, written, and loaded."""

    def call() -> None:
        method = add_method()
        change(method)
        pteron.load(build(method)).load_method()

    return call


def damaged(change: Callable[[bytearray], object]) -> Callable[[], object]:
    """The bytes of `x + y` with a constant, changed, and loaded."""

    def call() -> None:
        method = add_method()
        method.add(method.inputs[0], method.constant(X), method.outputs[0])
        data = bytearray(build(method))
        change(data)
        pteron.load(bytes(data))

    return call


def _put(at: int, *number: int, size: int = 8) -> Callable[[bytearray], object]:
    def change(data: bytearray) -> None:
        for i, n in enumerate(number):
            data[at + i * size : at + (i + 1) * size] = n.to_bytes(size, "little")

    return change


def _plan(program: Any) -> Any:
    return program.execution_plan[0]


def _tensor(**fields: Any) -> Callable[[], object]:
    """Fields of the first tensor."""

    def edit(program: Any) -> None:
        for name, value in fields.items():
            setattr(_plan(program).values[0].val, name, value)

    return written(edit)


def _value(val: Any) -> Callable[[], object]:
    return written(lambda p: _plan(p).values.append(schema.EValue(val)))


def _instruction(call: Any) -> Callable[[], object]:
    return written(lambda p: _plan(p).chains[0].instructions.append(schema.Instruction(call)))


def _with_named(key: str, data: bytes) -> Callable[[], object]:
    def call() -> None:
        program = assemble(add_method())
        program.named_data = [n for n in program.named_data if n.key != key]
        program.named_data.append(schema.NamedData(key, data, 16))
        pteron.load(_native.serialize_program(program)).load_method()

    return call


def _interface(**io: Any) -> Callable[[], object]:
    shape = {"name": "x", "shape": [2, 3]}
    method = {"inputs": [shape, shape], "outputs": [shape]} | io
    text = json.dumps({"version": 1, "methods": {"forward": method}})
    return _with_named("pteron.interface", text.encode())


def _tree(text: str) -> Callable[[], object]:
    def call() -> None:
        method = add_method()
        method.input_tree = text
        pteron.load(build(method)).load_method()(X, X)

    return call


def _data_file(*entries: Any, change: Callable[[bytearray], object] | None = None) -> Callable[[], object]:
    def call() -> None:
        head, pieces, length = _native.layout_data_file(list(entries))
        data = bytearray(length)
        data[: len(head)] = head
        for offset, piece in pieces:
            data[offset : offset + len(piece)] = piece
        if change:
            change(data)
        _native.data_listing(bytes(data))

    return call


def _entry(key: str = "w", **fields: Any) -> Any:
    layout = schema.TensorLayout(6, [2], [0])
    entry = schema.DataFileEntry(key, b"\0" * 8, 16, layout)
    for name, value in fields.items():
        setattr(layout if hasattr(layout, name) else entry, name, value)
    return entry


def _overlapping() -> None:
    m = MethodBuilder()
    x = m.input(m.tensor([4, 4]))
    y = m.tensor([4, 4])
    m.add(x, x, y)
    out = m.output(m.tensor([4, 4]))
    m.values[out].allocation_info = schema.AllocationDetails(
        1, m.values[y].allocation_info.memory_offset_low + 4, 0
    )
    m.call("aten::permute_copy.out", [y, m.int_list([1, 0]), out, out])
    pteron.load(build(m)).load_method()


def _arena_devices(*entries: tuple[int, int, int]) -> Callable[[], object]:
    devices = [schema.NonConstBufferDevice(*entry) for entry in entries]
    return written(lambda p: setattr(_plan(p), "non_const_buffer_device", devices))


def _large_arena() -> None:
    method = add_method()
    method.planned_bytes = (1 << 63) - 1
    pteron.load(build(method), limits=pteron.Limits(arena_bytes=1 << 20)).load_method()


CALLS: dict[str, Callable[[], object]] = {
    # The container.
    "an empty file": lambda: pteron.load(b""),
    "a text": lambda: pteron.load(b"this is not a program"),
    "another generation": lambda: pteron.load(b"\0\0\0\0ET99" + b"\0" * 64),
    "a data file": lambda: pteron.load(b"\0\0\0\0FT01" + b"\0" * 64),
    "a damaged bundle": lambda: pteron.load(b"\0\0\0\0BP08" + b"\0" * 64),
    "a file cut in its header": damaged(lambda d: d.__delitem__(slice(20, None))),
    "a file cut in its table": damaged(lambda d: d.__delitem__(slice(200, None))),
    "a file cut in its segments": damaged(lambda d: d.pop()),
    "a short header": damaged(_put(12, 4, size=4)),
    "a table longer than the file": damaged(_put(16, HUGE)),
    "segments inside the table": damaged(_put(24, 64)),
    "a size of segments without a place": damaged(_put(24, 0)),
    "segments longer than the file": damaged(_put(32, HUGE)),
    "a root outside the table": damaged(_put(0, 1 << 31, size=4)),
    "no header": damaged(lambda d: d.__setitem__(slice(8, 12), b"none")),
    # The program.
    "a later version": written(lambda p: setattr(p, "version", 9)),
    "two methods of one name": lambda: build(add_method(), add_method()),
    "two named blobs of one key": written(lambda p: p.named_data.append(p.named_data[0])),
    "a constant at entry 0": written(lambda p: p.constant_buffer.__setitem__(0, schema.Buffer(b"1234"))),
    "no chain": written(lambda p: _plan(p).chains.clear()),
    "an arena of negative size": written(lambda p: _plan(p).non_const_buffer_sizes.append(-1)),
    "an arena larger than the limit": _large_arena,
    "the device of an arena that is not there": _arena_devices((9, 1, 0)),
    "two devices of an arena": _arena_devices((1, 1, 0), (1, 1, 1)),
    "a device of a negative index": _arena_devices((1, 1, -1)),
    "a device of an unknown type": _arena_devices((1, 5, 0)),
    "an input that is not there": written(lambda p: _plan(p).inputs.append(99)),
    "an output that is not there": written(lambda p: _plan(p).outputs.append(-1)),
    "an input that is a list": written(
        lambda p: (
            _plan(p).values.append(schema.EValue(schema.IntList([]))),
            _plan(p).inputs.append(len(_plan(p).values) - 1),
        )
    ),
    "an input twice": loaded(lambda m: m.input(m.inputs[0])),
    "an input that is a constant": loaded(lambda m: m.input(m.constant(X))),
    # Values.
    "an unknown dtype": _tensor(scalar_type=99),
    "a quantised dtype": _tensor(scalar_type=12),
    "a negative extent": _tensor(sizes=[-2, 3]),
    "extents beyond any memory": _tensor(sizes=[2**31 - 1] * 2, dim_order=[0, 1]),
    "extents beyond counting": _tensor(sizes=[2**31 - 1] * 6, dim_order=list(range(6))),
    "17 dimensions": _tensor(sizes=[1] * 17, dim_order=list(range(17))),
    "an order of other dimensions": _tensor(dim_order=[0, 0]),
    "an order of another rank": _tensor(dim_order=[0]),
    "a sparse tensor": _tensor(layout=1),
    "a tensor inside its storage": _tensor(storage_offset=1),
    "an unbounded tensor": _tensor(shape_dynamism=2),
    "an unknown dynamism": _tensor(shape_dynamism=7),
    "a tensor of an arena that is not there": _tensor(allocation_info=schema.AllocationDetails(7, 0, 0)),
    "a tensor of arena 0": _tensor(allocation_info=schema.AllocationDetails(0, 0, 0)),
    "a tensor outside its arena": _tensor(allocation_info=schema.AllocationDetails(1, 1 << 20, 0)),
    "a tensor at an odd place": _tensor(allocation_info=schema.AllocationDetails(1, 1, 0)),
    "a constant that is not there": _tensor(allocation_info=None, data_buffer_idx=9),
    "a constant that is too short": written(
        lambda p: (
            p.constant_buffer.append(schema.Buffer(b"1234")),
            setattr(_plan(p).values[0].val, "allocation_info", None),
            setattr(_plan(p).values[0].val, "data_buffer_idx", 1),
        )
    ),
    "an external tensor without a name": _tensor(
        allocation_info=None, extra_tensor_info=schema.ExtraTensorInfo(0, None, 1)
    ),
    "an unknown place of data": _tensor(extra_tensor_info=schema.ExtraTensorInfo(0, "w", 9)),
    "a list of values that are not there": _value(schema.IntList([99])),
    "a list of values of another kind": _value(schema.IntList([0])),
    "a list of tensors that are none": _value(schema.TensorList([-1])),
    "a name of a megabyte": _value(schema.String("x" * (1 << 21))),
    # Instructions.
    "an operator that is not there": _instruction(schema.KernelCall(9, [])),
    "a call with a value that is not there": _instruction(schema.KernelCall(0, [99])),
    "a delegate that is not there": _instruction(schema.DelegateCall(9, [])),
    "a jump beyond the end": loaded(lambda m: m.jump_if_false(m.bool(False), 99)),
    "a jump on a tensor of floats": _instruction(schema.JumpFalseCall(0, 0)),
    "a move between kinds": _instruction(schema.MoveCall(0, 3)),
    "a free of a number": _instruction(schema.FreeCall(3)),
    "too few arguments": loaded(lambda m: m.call("aten::add.out", [0, 1])),
    "a number in place of a tensor": loaded(lambda m: m.call("aten::add.out", [0, m.int(1), m.int(1), 2, 2])),
    "another return": loaded(lambda m: m.call("aten::add.out", [0, 1, m.int(1), 2, 1])),
    "a write to a constant": loaded(lambda m: m.add(0, 1, m.constant(X))),
    "an output over an input": _overlapping,
    # Delegates.
    "a blob that is not there": written(
        lambda p: setattr(_plan(p).delegates[0].processed, "index", 5), delegate_method("B")
    ),
    # Named data.
    "an interface that is no JSON": _with_named("pteron.interface", b"{"),
    "an interface of another version": _with_named("pteron.interface", b'{"version": 9}'),
    "an interface with other inputs": _interface(inputs=[]),
    "an interface with an illegal range": _interface(
        inputs=[{"name": "x", "shape": [{"min": 3, "max": 1}, 3]}] * 2
    ),
    "an interface of another rank": _interface(inputs=[{"name": "x", "shape": [2]}] * 2),
    "an interface with too many entries": _with_named("pteron.interface", b"[0" + b",0" * (1 << 20) + b",0]"),
    "an interface that is too long": _with_named("pteron.interface", b'"' + b"x" * (16 << 20) + b'"'),
    "packed weights that are no JSON": _with_named("pteron.packed", b"no"),
    "packed weights of another version": _with_named("pteron.packed", b'{"version": 7}'),
    "packed weights without a list": _with_named("pteron.packed", b'{"version": 1}'),
    "packed weights without a name": _with_named("pteron.packed", b'{"version": 1, "packs": [{}]}'),
    # Structures.
    "a structure that is no JSON": _tree("["),
    "a structure of another protocol": _tree("[2, null]"),
    "a structure that is none": _tree("{}"),
    "a structure with other leaves": _tree(call_tree([leaf()])),
    "a structure without halves": _tree(tree_text(leaf())),
    # Data files.
    "a data file that is too short": lambda: _native.data_listing(b"1234"),
    "a data file that is none": lambda: _native.data_listing(b"\0" * 64),
    "a data file without a header": _data_file(_entry(), change=_put(8, 0)),
    "a data file with a short header": _data_file(_entry(), change=_put(12, 4, size=4)),
    "a data file with a long table": _data_file(_entry(), change=_put(24, HUGE)),
    "a data file that is cut": _data_file(_entry(), change=lambda d: d.pop()),
    "two entries of one key": _data_file(_entry(), _entry(data=b"\1" * 8)),
    "an entry of another length": _data_file(_entry(sizes=[3])),
    "an entry with a negative extent": _data_file(_entry(sizes=[-1])),
    "an entry with an unknown dtype": _data_file(_entry(scalar_type=77)),
    "an entry with another order": _data_file(_entry(dim_order=[3])),
    # Writers.
    "an alignment of 0": lambda: _native.serialize_program(assemble(add_method()), segment_alignment=0),
    "an alignment that is no power of two": lambda: _native.serialize_program(
        assemble(add_method()), constant_tensor_alignment=12
    ),
}

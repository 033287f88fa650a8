"""Small programs for tests of the run half, built without torch.

`MethodBuilder` fills the value table and the chain of one method; `build` turns methods into a file's bytes.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import pteron
from pteron._native import serialize_program


def _load_schema() -> ModuleType:
    """`pteron.exir.schema` by its path: importing the package around it would import torch."""
    path = Path(pteron.__file__).parent / "exir" / "schema.py"
    spec = importlib.util.spec_from_file_location("pteron_program_schema", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


schema = sys.modules.get("pteron_program_schema") or _load_schema()

CODES = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex64": 9,
    "bool": 11,
    "bfloat16": 15,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
}
ITEM_SIZES = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 9: 8, 11: 1, 15: 2, 27: 2, 28: 4, 29: 8}


def leaf() -> dict[str, Any]:
    """A value in a stored structure."""
    return {"type": None, "context": None, "children_spec": []}


def node(kind: str, children: list[Any], context: Any = None) -> dict[str, Any]:
    """A container in a stored structure."""
    return {"type": kind, "context": json.dumps(context), "children_spec": children}


def tree_text(root: dict[str, Any]) -> str:
    """The text that a file stores for a structure."""
    return json.dumps([1, root])


def call_tree(positional: list[Any], keyword: dict[str, Any] | None = None) -> str:
    """The structure of a call."""
    keyword = keyword or {}
    kwargs = node("builtins.dict", list(keyword.values()), list(keyword))
    return tree_text(node("builtins.tuple", [node("builtins.tuple", positional), kwargs]))


class MethodBuilder:
    """One method. Tensors get places of their own in planned memory."""

    def __init__(self, name: str = "forward") -> None:
        self.name = name
        self.values: list[Any] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.operators: list[Any] = []
        self.instructions: list[Any] = []
        self.delegates: list[tuple[str, bytes, list[tuple[str, bytes]]]] = []
        self.constants: list[bytes] = []
        self.mutable: list[bytes] = []
        self.names: dict[int, str] = {}
        self.ranges: dict[int, list[Any]] = {}
        self.planned_bytes = 0
        self.input_tree = ""
        self.output_tree = ""

    def value(self, val: Any) -> int:
        self.values.append(val)
        return len(self.values) - 1

    def int(self, v: int) -> int:
        return self.value(schema.Int(v))

    def bool(self, v: bool) -> int:
        return self.value(schema.Bool(v))

    def double(self, v: float) -> int:
        return self.value(schema.Double(v))

    def string(self, v: str) -> int:
        return self.value(schema.String(v))

    def none(self) -> int:
        return self.value(schema.Null())

    def int_list(self, items: list[int]) -> int:
        ids = [self.int(i) for i in items]
        return self.value(schema.IntList(ids))

    def tensor(
        self,
        shape: list[int],
        dtype: str = "float32",
        *,
        planned: bool = True,
        dynamic: bool = False,
        dim_order: list[int] | None = None,
        data_index: int = 0,
        buffer_name: str | None = None,
    ) -> int:
        code = CODES[dtype]
        place = None
        if planned:
            self.planned_bytes = -(-self.planned_bytes // 64) * 64
            place = schema.AllocationDetails(1, self.planned_bytes, 0)
            self.planned_bytes += int(np.prod(shape, dtype=np.int64)) * ITEM_SIZES[code]
        extra = schema.ExtraTensorInfo(0, buffer_name, 0) if buffer_name else None
        order = dim_order if dim_order is not None else list(range(len(shape)))
        return self.value(
            schema.Tensor(code, 0, shape, order, False, 0, data_index, place, int(dynamic), extra)
        )

    def constant(self, array: np.ndarray[Any, Any]) -> int:
        self.constants.append(array.tobytes())
        return self.tensor(list(array.shape), array.dtype.name, planned=False, data_index=len(self.constants))

    def state(self, name: str, initial: np.ndarray[Any, Any]) -> int:
        """A mutable buffer with initial contents."""
        self.mutable.append(initial.tobytes())
        return self.tensor(
            list(initial.shape), initial.dtype.name, data_index=len(self.mutable), buffer_name=name
        )

    def input(self, index: int, name: str | None = None, dims: list[Any] | None = None) -> int:
        """Makes the value an input; `dims` as in `pteron.interface`."""
        self.inputs.append(index)
        if name is not None:
            self.names[index] = name
        if dims is not None:
            self.ranges[index] = dims
        return index

    def output(self, index: int) -> int:
        self.outputs.append(index)
        return index

    def call(self, operator: str, args: list[int]) -> None:
        name, _, overload = operator.partition(".")
        op = schema.Operator(name, overload)
        if op not in self.operators:
            self.operators.append(op)
        self.instructions.append(schema.Instruction(schema.KernelCall(self.operators.index(op), args)))

    def add(self, a: int, b: int, out: int, alpha: int = 1) -> None:
        self.call("aten::add.out", [a, b, self.int(alpha), out, out])

    def delegate(
        self, backend: str, args: list[int], blob: bytes = b"", specs: list[tuple[str, bytes]] | None = None
    ) -> None:
        self.delegates.append((backend, blob, specs or []))
        self.instructions.append(schema.Instruction(schema.DelegateCall(len(self.delegates) - 1, args)))

    def jump_if_false(self, condition: int, destination: int) -> None:
        self.instructions.append(schema.Instruction(schema.JumpFalseCall(condition, destination)))

    def _io(self, index: int, fallback: str) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": self.names.get(index, fallback)}
        val = self.values[index]
        if isinstance(val, schema.Tensor):
            entry["shape"] = self.ranges.get(index, list(val.sizes))
        elif index in self.ranges:
            entry["range"] = self.ranges[index]
        return entry

    def interface(self) -> dict[str, Any]:
        return {
            "inputs": [self._io(v, f"input{i}") for i, v in enumerate(self.inputs)],
            "outputs": [self._io(v, f"output{i}") for i, v in enumerate(self.outputs)],
        }


def build(
    *methods: MethodBuilder, named_data: dict[str, bytes] | None = None, debug: dict[str, Any] | None = None
) -> bytes:
    """The bytes of a program. Constants of the methods are laid one after the other."""
    return serialize_program(assemble(*methods, named_data=named_data, debug=debug))


def assemble(
    *methods: MethodBuilder, named_data: dict[str, bytes] | None = None, debug: dict[str, Any] | None = None
) -> Any:
    """The program as `pteron.exir.schema` has it."""
    program = schema.Program(version=0)
    blobs: list[bytes] = []
    for m in methods:
        constant_base = len(program.constant_buffer) - 1
        mutable_base = len(program.mutable_data) - 1
        for val in m.values:
            if isinstance(val, schema.Tensor) and val.data_buffer_idx:
                val.data_buffer_idx += mutable_base if val.allocation_info else constant_base
        program.constant_buffer += [schema.Buffer(c) for c in m.constants]
        program.mutable_data += [schema.Buffer(c) for c in m.mutable]
        delegates = []
        for backend, blob, specs in m.delegates:
            blobs.append(blob)
            reference = schema.BackendDelegateDataReference(0, len(blobs) - 1)
            delegates.append(
                schema.BackendDelegate(backend, reference, [schema.CompileSpec(k, v) for k, v in specs])
            )
        program.execution_plan.append(
            schema.ExecutionPlan(
                name=m.name,
                container_meta_type=schema.ContainerMetadata(m.input_tree, m.output_tree),
                values=[schema.EValue(v) for v in m.values],
                inputs=m.inputs,
                outputs=m.outputs,
                chains=[schema.Chain([], [], m.instructions)],
                operators=m.operators,
                delegates=delegates,
                non_const_buffer_sizes=[0, m.planned_bytes],
            )
        )
    program.backend_delegate_data = [schema.BackendDelegateInlineData(b) for b in blobs]
    interface = {"version": 1, "methods": {m.name: m.interface() for m in methods}}
    program.named_data.append(schema.NamedData("pteron.interface", json.dumps(interface).encode(), 1))
    if debug is not None:
        program.named_data.append(schema.NamedData("pteron.debug", json.dumps(debug).encode(), 1))
    for key, data in (named_data or {}).items():
        program.named_data.append(schema.NamedData(key, data, 16))
    return program


def add_method(
    shape: tuple[int, ...] = (2, 3), dtype: str = "float32", *, planned: bool = True, name: str = "forward"
) -> MethodBuilder:
    """`x + y`."""
    m = MethodBuilder(name)
    x = m.input(m.tensor(list(shape), dtype, planned=planned), "x")
    y = m.input(m.tensor(list(shape), dtype, planned=planned), "y")
    out = m.output(m.tensor(list(shape), dtype))
    m.add(x, y, out)
    m.input_tree = call_tree([leaf(), leaf()])
    m.output_tree = tree_text(leaf())
    return m


def on_device(program: Any, *, label_only: bool = False) -> Any:
    """A program of `assemble`, the result of the first delegate call of each method moved to GPU 2: into
    memory there, or with `label_only` no more than said to be there.
    """
    gpu = schema.DeviceType.CUDA
    for plan in program.execution_plan:
        calls = [each.instr_args for each in plan.chains[0].instructions]
        results = [call.args[-1] for call in calls if isinstance(call, schema.DelegateCall)]
        for result in results[:1]:
            tensor = plan.values[result].val
            tensor.extra_tensor_info = schema.ExtraTensorInfo(device_type=gpu, device_index=2)
            if not label_only:
                tensor.allocation_info = schema.AllocationDetails(2, 0, 0)
                plan.non_const_buffer_sizes.append(64)
                plan.non_const_buffer_device = [schema.NonConstBufferDevice(2, gpu, 2)]
    return program


def dynamic_add_method(rows: tuple[int, int] = (1, 8), columns: int = 3) -> MethodBuilder:
    """`x + y` over a number of rows that may vary, equal for both."""
    m = MethodBuilder()
    dims = [{"symbol": "s0", "min": rows[0], "max": rows[1]}, columns]
    bound = [rows[1], columns]
    x = m.input(m.tensor(bound, dynamic=True), "x", dims)
    y = m.input(m.tensor(bound, dynamic=True), "y", dims)
    out = m.output(m.tensor(bound, dynamic=True))
    m.ranges[out] = dims
    m.add(x, y, out)
    m.input_tree = call_tree([leaf(), leaf()])
    m.output_tree = tree_text(leaf())
    return m


def counter_method() -> MethodBuilder:
    """Adds the input to a buffer and gives the sum; the buffer keeps it."""
    m = MethodBuilder()
    x = m.input(m.tensor([2]), "x")
    total = m.state("total", np.array([10.0, 20.0], dtype=np.float32))
    new = m.tensor([2])
    out = m.output(m.tensor([2]))
    m.add(total, x, new)
    m.call("aten::copy_", [total, new, m.bool(False), total])
    m.add(new, m.constant(np.zeros(2, dtype=np.float32)), out)
    m.input_tree = call_tree([leaf()])
    m.output_tree = tree_text(leaf())
    return m


def endless_method() -> MethodBuilder:
    """Jumps back for ever."""
    m = add_method()
    m.jump_if_false(m.bool(False), 0)
    return m


def delegate_method(
    backend: str, *, blob: bytes = b"blob", specs: list[tuple[str, bytes]] | None = None, inputs: int = 2
) -> MethodBuilder:
    """One delegate call with `inputs` tensors in and one out, between two adds with zero."""
    m = MethodBuilder()
    zero = m.constant(np.zeros((2, 3), dtype=np.float32))
    args = []
    for i in range(inputs):
        given = m.input(m.tensor([2, 3]), f"x{i}")
        copied = m.tensor([2, 3])
        m.add(given, zero, copied)
        args.append(copied)
    made = m.tensor([2, 3])
    m.delegate(backend, [*args, made], blob, specs)
    out = m.output(m.tensor([2, 3]))
    m.add(made, zero, out)
    m.input_tree = call_tree([leaf()] * inputs)
    m.output_tree = tree_text(leaf())
    return m


def announced_endless_method(backend: str) -> MethodBuilder:
    """Calls a delegate once, which may say that the run has begun, and then adds for ever."""
    m = delegate_method(backend)
    m.jump_if_false(m.bool(False), 3)
    return m

"""The value table of one method."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from pteron.errors import ExportError
from pteron.exir.edge.scalar_type import scalar_type_of
from pteron.exir.edge.target_device import CPU
from pteron.exir.edge.tensor_spec import TensorSpec
from pteron.exir.schema import (
    DYNAMIC_BOUND,
    EXTERNAL,
    IN_SEGMENT,
    STATIC,
    AllocationDetails,
    Bool,
    BoolList,
    Double,
    DoubleList,
    EValue,
    ExtraTensorInfo,
    Int,
    IntList,
    KernelTypes,
    Null,
    OptionalTensorList,
    String,
    Tensor,
    TensorList,
)

_MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}


class ValueTable:
    """Values of one method and which graph node each stands for."""

    def __init__(self) -> None:
        self.values: list[EValue] = []
        self._of_node: dict[torch.fx.Node, int | list[int]] = {}
        self._results: dict[TensorSpec, int] = {}

    def add(self, value: KernelTypes) -> int:
        """Append a value and return its index."""
        self.values.append(EValue(value))
        return len(self.values) - 1

    def bind(self, node: torch.fx.Node, index: int | list[int]) -> None:
        """State which value, or list of values, `node` stands for."""
        self._of_node[node] = index

    def of(self, node: torch.fx.Node) -> int | list[int]:
        """The value, or list of values, of a node that was emitted before."""
        return self._of_node[node]

    def index_of(self, node: torch.fx.Node) -> int:
        """The value of a node that stands for exactly one."""
        found = self._of_node[node]
        if isinstance(found, list):
            raise ExportError(f"{node.format_node()}: expected one value, got a list of {len(found)}")
        return found

    def has(self, node: torch.fx.Node) -> bool:
        """Whether `node` was emitted before."""
        return node in self._of_node

    def add_tensor(
        self,
        spec: TensorSpec,
        *,
        data_buffer_idx: int = 0,
        name: str | None = None,
        is_external: bool = False,
        is_placed: bool = True,
        is_growing: bool = False,
    ) -> int:
        """Append a tensor value for `spec`, in the memory of its root unless `is_placed` is false.

        `is_external`: its bytes, or the first ones, are in a data file under `name`. `is_growing`: its shape
        varies while the method runs, though readers see the shape of `spec`.
        """
        root = spec.root
        allocation = None
        if is_placed and root.memory_id is not None and root.memory_offset is not None:
            allocation = AllocationDetails(
                root.memory_id, root.memory_offset & 0xFFFF_FFFF, root.memory_offset >> 32
            )
        return self.add(
            Tensor(
                scalar_type=scalar_type_of(spec.dtype),
                storage_offset=0,
                sizes=list(spec.shape),
                dim_order=list(spec.dim_order),
                requires_grad=False,
                layout=0,
                data_buffer_idx=data_buffer_idx,
                allocation_info=allocation,
                shape_dynamism=DYNAMIC_BOUND if spec.is_dynamic or is_growing else STATIC,
                extra_tensor_info=_extra(spec, name, is_external),
            )
        )

    def add_result(self, spec: Any) -> int:
        """The value of what a call returns: a tensor, where `spec` is a `TensorSpec`, or a number.

        A tensor that is computed in the place of a result of control flow *is* that result.
        """
        if not isinstance(spec, TensorSpec):
            return self.add_symbolic(spec)
        base = spec.base
        shared = self._results.get(base) if base is not None and spec.is_like(base) else None
        index = self.add_tensor(spec) if shared is None else shared
        self._results[spec] = index
        return index

    def keep_result(self, spec: TensorSpec, index: int) -> None:
        """State that the tensor of `spec`, a result of control flow, is the value `index`."""
        self._results[spec] = index

    def add_copy(self, index: int) -> int:
        """Append a value of the same kind and content as the number at `index`."""
        return self.add(self.values[index].val)

    def add_literal(self, value: Any) -> int:
        """Append a Python value whose type says what it is: None, bool, int, float, str, dtype and the
        like.
        """
        return self.add(_literal(value))

    def add_symbolic(self, value: Any) -> int:
        """Append a slot for a number that an instruction computes."""
        if isinstance(value, (bool, torch.SymBool)):
            return self.add(Bool(False))
        if isinstance(value, (float, torch.SymFloat)):
            return self.add(Double(0.0))
        return self.add(Int(0))

    def argument(self, value: Any, schema: torch.Argument) -> int:
        """The value index of an operator's argument: that of a node, or of a new value of the schema's
        type.
        """
        kind = schema.type
        if isinstance(kind, torch.OptionalType):
            if value is None:
                return self.add(Null())
            kind = kind.getElementType()
        if isinstance(value, torch.fx.Node):
            found = self.of(value)
            return self.add(TensorList(found)) if isinstance(found, list) else found
        if isinstance(kind, torch.ListType):
            return self._list(value, kind.getElementType(), schema)
        if isinstance(kind, torch.TensorType) and value is None:
            # "No tensor" where the schema does not allow None.
            return self.add(Tensor(0, 0, [0], [0], False, 0, 0, None, STATIC))
        return self.add(_literal_as(value, kind))

    def _list(self, value: Any, element: Any, schema: torch.Argument) -> int:
        if not isinstance(value, Sequence) or isinstance(value, str):
            # `int[2] stride=1` takes one number for all.
            value = [value] * (getattr(schema, "N", None) or 1)
        if isinstance(element, torch.OptionalType):
            return self.add(
                OptionalTensorList([-1 if item is None else self.index_of(item) for item in value])
            )
        if isinstance(element, torch.TensorType):
            return self.add(TensorList([self.index_of(item) for item in value]))
        if isinstance(element, torch.BoolType):
            return self.add(BoolList([bool(item) for item in value]))
        if isinstance(element, torch.FloatType):
            return self.add(DoubleList([float(item) for item in value]))
        if isinstance(element, torch.IntType) or str(element) == "SymInt":
            items = [
                self.index_of(item)
                if isinstance(item, torch.fx.Node)
                else self.add(Int(operator.index(item)))
                for item in value
            ]
            return self.add(IntList(items))
        raise ExportError(
            f"argument {schema.name!r}: a list of {element} cannot be stored in a program",
            argument=schema.name,
            got=repr(value),
            expected="a list of tensors, optional tensors, integers, floats or booleans",
        )


def _extra(spec: TensorSpec, name: str | None, is_external: bool) -> ExtraTensorInfo | None:
    device = (spec.device, spec.device_index)
    if name is None and device == CPU:
        return None
    location = EXTERNAL if is_external else IN_SEGMENT
    return ExtraTensorInfo(
        fully_qualified_name=name, location=location, device_type=device[0], device_index=device[1]
    )


def _literal_as(value: Any, kind: Any) -> KernelTypes:
    if isinstance(kind, torch.FloatType) and isinstance(value, (int, float)):
        return Double(float(value))
    if isinstance(kind, torch.BoolType) and isinstance(value, int):
        return Bool(bool(value))
    return _literal(value)


def _literal(value: Any) -> KernelTypes:
    if value is None:
        return Null()
    if isinstance(value, bool):
        return Bool(value)
    if isinstance(value, int):
        return Int(value)
    if isinstance(value, float):
        return Double(value)
    if isinstance(value, str):
        return String(value)
    if isinstance(value, torch.dtype):
        return Int(scalar_type_of(value))
    if isinstance(value, torch.layout) and value is torch.strided:
        return Int(0)
    if isinstance(value, torch.memory_format) and value in _MEMORY_FORMATS:
        return Int(_MEMORY_FORMATS[value])
    if isinstance(value, torch.device) and value.type == "cpu":
        return Null()
    raise ExportError(
        f"{value!r} of type {type(value).__name__} cannot be stored in a program",
        expected="None, bool, int, float, str, dtype, strided layout, memory format or CPU device",
        got=repr(value),
    )

"""An ONNX graph under construction, addressed by the nodes of the program that it is made from."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

#: What ONNX Runtime has had since 1.17. `Gelu` is in it.
OPSET = 20
_IR_VERSION = 10

ONNX_TYPE: dict[torch.dtype, int] = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.float64: TensorProto.DOUBLE,
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.int16: TensorProto.INT16,
    torch.int8: TensorProto.INT8,
    torch.uint8: TensorProto.UINT8,
    torch.bool: TensorProto.BOOL,
}


class UnsupportedError(Exception):
    """ONNX has no operator for a node, or not for these arguments; the text says why."""


class Graph:
    """Nodes and constants of a model; values are known by name.

    Names are made of those of the program's nodes, so that an operator of ONNX Runtime leads back to them.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, torch.Tensor] = {}
        self._values: dict[torch.fx.Node, Any] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._dims: dict[str, str] = {}
        self._prefix, self._count = "", 0

    # --- values ---------------------------------------------------------------------------------------------

    def set(self, node: torch.fx.Node, value: Any) -> None:
        """The name of a node's result; a list of names where it has several."""
        self._values[node] = value

    def name(self, node: Any) -> str:
        """The value of a tensor argument.

        Raises:
            UnsupportedError: it is none.
        """
        value = self._values.get(node) if isinstance(node, torch.fx.Node) else None
        if not isinstance(value, str):
            raise UnsupportedError(f"an argument is {node!r} where a tensor is needed")
        return value

    def names(self, node: torch.fx.Node) -> list[str]:
        """The values of a node with several results."""
        value = self._values[node]
        return value if isinstance(value, list) else [value]

    def begin(self, prefix: str) -> None:
        """What follows belongs to this node of the program."""
        self._prefix, self._count = prefix, 0

    def op(self, kind: str, *inputs: str, **attributes: Any) -> Any:
        """Adds an operator; the name of its result, or a list of names where `outputs` says how many."""
        outputs = int(attributes.pop("outputs", 1))
        name = f"{self._prefix}/{kind}_{self._count}"
        self._count += 1
        results = [name] if outputs == 1 else [f"{name}:{at}" for at in range(outputs)]
        kept = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(kind, list(inputs), results, name=name, **kept))
        return results[0] if outputs == 1 else results

    def constant(self, value: Any, dtype: torch.dtype | None = None) -> str:
        """A constant; equal ones are one."""
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype)
        tensor = (tensor if dtype is None else tensor.to(dtype)).detach().contiguous()
        content = content_of(tensor)
        described = f"{tensor.dtype}{list(tensor.shape)}".encode()
        name = f"constant_{hashlib.sha256(described + content).hexdigest()[:32]}"
        self.constants[name] = tensor
        return name

    def cast(self, value: str, source: torch.dtype, wanted: torch.dtype) -> str:
        """`value` in another element type."""
        return value if source == wanted else str(self.op("Cast", value, to=ONNX_TYPE[wanted]))

    def tensor(self, argument: Any, wanted: torch.dtype) -> str:
        """A tensor, a number or a symbolic number, in the element type `wanted`."""
        if isinstance(argument, torch.fx.Node):
            value = argument.meta["val"]
            source = value.dtype if isinstance(value, torch.Tensor) else torch.int64
            return self.cast(self.name(argument), source, wanted)
        if isinstance(argument, bool | int | float):
            return self.constant(argument, wanted)
        raise UnsupportedError(f"an argument is {argument!r}")

    def ints(self, values: Sequence[Any]) -> str:
        """A vector of int64 from numbers and symbolic numbers."""
        if all(isinstance(value, int) for value in values):
            return self.constant(list(values), torch.int64)
        parts = [
            self.constant([value], torch.int64)
            if isinstance(value, int)
            else self.op("Reshape", self.name(value), self.constant([1], torch.int64))
            for value in values
        ]
        return parts[0] if len(parts) == 1 else str(self.op("Concat", *parts, axis=0))

    def extent(self, value: str, dim: int) -> str:
        """An extent of a tensor, as a number."""
        shape = self.op("Shape", value, start=dim, end=dim + 1)
        return str(self.op("Squeeze", shape, self.constant([0], torch.int64)))

    # --- the border -----------------------------------------------------------------------------------------

    def add_input(self, name: str, value: Any) -> str:
        """Declares an input with the type and extents of a fake tensor; a symbolic number is a tensor."""
        self._inputs.append(self._declared(name, value))
        return name

    def add_output(self, name: str, source: str, value: Any) -> None:
        """Declares a result."""
        self.begin(name)
        self.nodes.append(helper.make_node("Identity", [source], [name], name=f"{name}/Identity"))
        self._outputs.append(self._declared(name, value))

    def dims(self, value: Any) -> list[int | str]:
        """Extents: numbers, and names where they vary. One expression has one name."""
        if not isinstance(value, torch.Tensor):
            return []
        return [
            d if isinstance(d, int) else self._dims.setdefault(str(d), f"d{len(self._dims)}")
            for d in value.shape
        ]

    def _declared(self, name: str, value: Any) -> onnx.ValueInfoProto:
        dtype = value.dtype if isinstance(value, torch.Tensor) else torch.int64
        if dtype not in ONNX_TYPE:
            raise UnsupportedError(f"ONNX has no element type {dtype}")
        return helper.make_tensor_value_info(name, ONNX_TYPE[dtype], self.dims(value))

    def model(self, largest: int) -> tuple[onnx.ModelProto, dict[str, torch.Tensor]]:
        """The model, and the constants of more than `largest` bytes, which it only declares."""
        read = {name for node in self.nodes for name in node.input}
        initializers, outside = [], {}
        for name, tensor in self.constants.items():
            if name not in read:
                continue
            content = content_of(tensor)
            proto = TensorProto(name=name, data_type=ONNX_TYPE[tensor.dtype], dims=list(tensor.shape))
            if len(content) > largest:
                outside[name] = tensor
                proto.data_location = TensorProto.EXTERNAL
                place = {"location": "pteron", "offset": "0", "length": str(len(content))}
                for key, text in place.items():
                    proto.external_data.add(key=key, value=text)
            else:
                proto.raw_data = content
            initializers.append(proto)
        graph = helper.make_graph(self.nodes, "pteron", self._inputs, self._outputs, initializers)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION), outside


def content_of(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor, in order."""
    if not tensor.numel():
        return b""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return np.asarray(flat.numpy()).tobytes()


def is_getitem(node: torch.fx.Node) -> bool:
    """Does the node take one of several results?"""
    return node.target is operator.getitem

"""A method of a program as a model of the protocol: its metadata, and its inputs in the order of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pteron.errors import InputError
from pteron.integrations.oip.tensors import DATATYPES, numpy_dtype
from pteron.pooled_call import FlatCall
from pteron.shown_names import shown_names

if TYPE_CHECKING:
    from pteron._native import DimRange, Program, ValueSpec

_VERSION = "1"


class Model:
    """A method behind the endpoints.

    Raises:
        InputError: the method keeps state between calls, takes or gives what the protocol has no form for, or
            does not name its inputs.
        ImportError: it takes bfloat16, and the package ml_dtypes is not there.
    """

    def __init__(self, name: str, program: Program, method: str) -> None:
        self.name, self.version = name, _VERSION
        self._program, self._method = program, method
        if program.buffers(method):
            raise _refused(name, method, "keeps state between calls")
        self._slots = program.inputs(method)
        self.inputs = {spec.name: spec for spec in self._slots if _is_asked_for(spec)}
        asked = sum(map(_is_asked_for, self._slots))
        if len(self.inputs) != asked or "" in self.inputs:
            raise _refused(name, method, "has inputs without names of their own")
        for spec in self.inputs.values():
            numpy_dtype(_checked_dtype(name, method, spec))
        outputs = program.outputs(method)
        stated = [spec.name for spec in outputs]
        #: Position and spec by name; those without a name of their own are called by their position.
        self.outputs: dict[str, tuple[int, ValueSpec]] = {}
        for i, spec in enumerate(outputs):
            if spec.kind == "none":
                continue
            _checked_dtype(name, method, spec)
            own = spec.name and stated.count(spec.name) == 1
            self.outputs[spec.name if own else f"output{i}"] = i, spec

    def call(self, given: Mapping[str, Any]) -> FlatCall:
        """Starts a call; values by input name."""
        return FlatCall(
            self._program, self._method, [given.get(spec.name, spec.value) for spec in self._slots]
        )

    def metadata(self) -> dict[str, Any]:
        """What the protocol tells of a model."""
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": "pteron",
            "inputs": [_described(name, spec) for name, spec in self.inputs.items()],
            "outputs": [_described(name, spec) for name, (_, spec) in self.outputs.items()],
        }


def dimensions(spec: ValueSpec) -> tuple[int | DimRange, ...]:
    """Those of a tensor; a symbolic integer is a tensor of one element."""
    return (1,) if spec.kind == "int" else spec.shape or ()


def dtype_of(spec: ValueSpec) -> str:
    """The name of the element type."""
    return "int64" if spec.kind == "int" else str(spec.dtype)


def _is_asked_for(spec: ValueSpec) -> bool:
    return spec.kind != "none" and spec.value is None


def _described(name: str, spec: ValueSpec) -> dict[str, Any]:
    shape = [dim if isinstance(dim, int) else -1 for dim in dimensions(spec)]
    return {"name": name, "datatype": DATATYPES[dtype_of(spec)], "shape": shape}


def _checked_dtype(name: str, method: str, spec: ValueSpec) -> str:
    if spec.kind not in ("tensor", "int") or dtype_of(spec) not in DATATYPES:
        raise _refused(name, method, f"has {shown_names([spec.name])!r}: {spec}")
    return dtype_of(spec)


def _refused(name: str, method: str, what: str) -> InputError:
    return InputError(
        f"the model {shown_names([name])!r} {what}, which the Open Inference Protocol has no form for",
        method=method,
        expected="tensors of bool, integers, float16, bfloat16, float32 or float64, and no state",
        hint="export the method with tensors alone, or run it with pteron.load",
    )

"""Requests and answers of inference, without the web: bytes to arrays by input name, outputs to bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from pteron.asgi import HttpError
from pteron.integrations.oip.model import Model, dimensions, dtype_of
from pteron.integrations.oip.tensors import (
    DATATYPES,
    bad,
    checked_shape,
    from_bytes,
    from_json,
    to_bytes,
    to_json,
)

_FIELDS = {"id", "parameters", "inputs", "outputs"}
# Parameters of Triton that order calls among each other; every call here is on its own.
_SEQUENCES = {"sequence_id": 0, "sequence_start": False, "sequence_end": False, "priority": 0}


@dataclass(frozen=True)
class Inference:
    """A checked request: values by input name, whether each wanted output comes as bytes, seconds at most."""

    id: str | None
    inputs: dict[str, Any]
    outputs: dict[str, bool]
    seconds: float | None


def read_inference(body: bytes, json_length: int | None, model: Model) -> Inference:
    """Checks a request. `json_length`: bytes of the JSON in front of binary tensors; None: all.

    Raises:
        HttpError: the request is malformed or does not fit the model (400); the text names the field.
    """
    length = len(body) if json_length is None else json_length
    if length > len(body):
        raise bad("Inference-Header-Content-Length", f"expected at most {len(body)}, the body; got more")
    content = _object(_parsed(body[:length]), "the body", _FIELDS)
    tag = content.get("id")
    if tag is not None and not isinstance(tag, str):
        raise bad("id", "expected a text")
    parameters = _parameters(content, "parameters", {"binary_data_output", "timeout", *_SEQUENCES})
    for name, value in _SEQUENCES.items():
        if name in parameters and (type(parameters[name]) is not type(value) or parameters[name] != value):
            raise bad(f"parameters.{name}", "sequences and priorities are not supported")
    binary = _boolean(parameters, "binary_data_output", "parameters", False)
    return Inference(
        tag,
        _inputs(content.get("inputs"), memoryview(body)[length:], model),
        _outputs(content.get("outputs"), binary, model),
        _seconds(parameters),
    )


def write_answer(asked: Inference, results: list[Any], model: Model) -> tuple[bytes, bytes | None]:
    """The JSON of an answer, and the binary tensors behind it; None where no output comes as bytes.

    Raises:
        HttpError: JSON has no form for an element (422).
    """
    described: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for name, is_binary in asked.outputs.items():
        position, spec = model.outputs[name]
        value = results[position]
        if spec.kind == "int":
            value = np.array([value], np.int64)
        entry: dict[str, Any] = {
            "name": name,
            "datatype": DATATYPES[dtype_of(spec)],
            "shape": list(value.shape),
        }
        if is_binary:
            binary.append(to_bytes(value))
            entry["parameters"] = {"binary_data_size": len(binary[-1])}
        else:
            entry["data"] = to_json(value, name)
        described.append(entry)
    answer: dict[str, Any] = {"model_name": model.name, "model_version": model.version, "outputs": described}
    if asked.id is not None:
        answer["id"] = asked.id
    return json.dumps(answer).encode(), b"".join(binary) if binary else None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content, parse_constant=_no_constant, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):
        raise HttpError(400, "the body: expected JSON, without NaN, Infinity and repeated names") from None


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _object(value: Any, field: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad(field, "expected an object")
    for name in value:
        if name not in known:
            raise bad(field, f"the field {name[:100]!r} is not known; known are {', '.join(sorted(known))}")
    return value


def _parameters(holder: dict[str, Any], field: str, known: set[str]) -> dict[str, Any]:
    return _object(holder["parameters"], field, known) if "parameters" in holder else {}


def _boolean(parameters: dict[str, Any], name: str, field: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise bad(f"{field}.{name}", "expected true or false")
    return value


def _seconds(parameters: dict[str, Any]) -> float | None:
    """The parameter `timeout`, microseconds; 0 is none."""
    value = parameters.get("timeout", 0)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise bad("parameters.timeout", "expected microseconds, an integer of at least 0")
    return value / 1e6 if value else None


def _inputs(value: Any, rest: memoryview, model: Model) -> dict[str, Any]:
    if not isinstance(value, list):
        raise bad("inputs", "expected a list")
    found: dict[str, Any] = {}
    for i, entry in enumerate(value):
        field = f"inputs[{i}]"
        entry = _object(entry, field, {"name", "datatype", "shape", "data", "parameters"})
        name = entry.get("name")
        if not isinstance(name, str) or name not in model.inputs:
            raise bad(f"{field}.name", f"expected one of {', '.join(model.inputs)}")
        if name in found:
            raise bad(f"{field}.name", f"the input {name!r} comes twice")
        spec = model.inputs[name]
        dtype = dtype_of(spec)
        if entry.get("datatype") != DATATYPES[dtype]:
            raise bad(f"{field}.datatype", f"expected {DATATYPES[dtype]}")
        shape = checked_shape(entry.get("shape"), dimensions(spec), field)
        size = _binary_size(entry, field)
        if size is None:
            array = from_json(entry.get("data"), dtype, shape, field)
        else:
            if size > len(rest):
                raise bad(
                    f"{field}.parameters.binary_data_size", f"only {len(rest)} bytes are left in the body"
                )
            array, rest = from_bytes(rest[:size], dtype, shape, field), rest[size:]
        found[name] = array if spec.kind == "tensor" else _integer(int(array[0]), spec.range, field)
    missing = [name for name in model.inputs if name not in found]
    if missing:
        raise bad("inputs", f"the input {missing[0]!r} is missing")
    if len(rest):
        raise bad("the body", f"{len(rest)} bytes behind the last binary input belong to none")
    return found


def _integer(value: int, limits: tuple[int, int] | None, field: str) -> int:
    if limits is not None and not limits[0] <= value <= limits[1]:
        raise bad(f"{field}.data", f"expected {limits[0]} to {limits[1]}; got {value}")
    return value


def _binary_size(entry: dict[str, Any], field: str) -> int | None:
    parameters = _parameters(entry, f"{field}.parameters", {"binary_data_size"})
    if "binary_data_size" not in parameters:
        return None
    size = parameters["binary_data_size"]
    if type(size) is not int or size < 0:
        raise bad(f"{field}.parameters.binary_data_size", "expected an integer of at least 0")
    if "data" in entry:
        raise bad(f"{field}.data", "an input has data or binary_data_size, not both")
    return size


def _outputs(value: Any, binary: bool, model: Model) -> dict[str, bool]:
    if value is None:
        return dict.fromkeys(model.outputs, binary)
    if not isinstance(value, list):
        raise bad("outputs", "expected a list")
    found: dict[str, bool] = {}
    for i, entry in enumerate(value):
        field = f"outputs[{i}]"
        entry = _object(entry, field, {"name", "parameters"})
        name = entry.get("name")
        if not isinstance(name, str) or name not in model.outputs:
            raise bad(f"{field}.name", f"expected one of {', '.join(model.outputs)}")
        if name in found:
            raise bad(f"{field}.name", f"the output {name!r} comes twice")
        parameters = _parameters(entry, f"{field}.parameters", {"binary_data"})
        found[name] = _boolean(parameters, "binary_data", f"{field}.parameters", binary)
    return found or dict.fromkeys(model.outputs, binary)

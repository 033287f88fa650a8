"""Inputs from files, or made up: what a method is called with from the command line."""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron import DimRange, ValueSpec
from pteron.cli.failure import UsageError
from pteron.cli.numbers import count_or_zero

_GENERATED = re.compile(
    r"(?P<name>[^=]+)=(?P<shape>\d+(?:x\d+)*|scalar)?(?::(?P<dtype>[a-z]+\d*))?(?::(?P<low>[^:]+?)\.\.(?P<high>[^:]+))?"
)
_SAFETENSORS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """How inputs are given."""
    parser.add_argument(
        "-i",
        "--input",
        action="append",
        default=[],
        metavar="FILE|NAME=SHAPE[:DTYPE][:LOW..HIGH]",
        help="a file (.npz and .safetensors by name, .npy in order), or one input made up, such as"
        " x=1x3x224x224:float32:0..1; may be repeated. Others are made up at their largest sizes",
    )
    parser.add_argument("--seed", type=count_or_zero, default=0, help="of what is made up")


def read_inputs(texts: Sequence[str], specs: Sequence[ValueSpec], seed: int) -> list[Any]:
    """One value for each input of a method, as `Method.execute` takes them.

    Raises:
        UsageError: a text is neither a file nor a specification, or names no input.
        OSError: a file cannot be read.
    """
    named: dict[str, Any] = {}
    ordered: list[Any] = []
    random = np.random.default_rng(seed)
    known = {spec.name: spec for spec in specs}
    for text in texts:
        path = Path(text)
        if path.suffix == ".npy":
            ordered.append(_load(path))
        elif path.suffix == ".npz":
            named.update(read_npz(path))
        elif path.suffix == ".safetensors":
            named.update(read_safetensors(path))
        else:
            name, value = _generated(text, known, random)
            named[name] = value
    by_place = {f"arr_{at}": spec.name for at, spec in enumerate(specs)}
    if named and not set(named) <= set(known):
        named = {
            by_place.get(name, name) if name not in known else name: value for name, value in named.items()
        }
    for name in named:
        if name not in known:
            raise UsageError(f"the method has no input {name!r}; it has {_names(specs)}")
    rest = iter(ordered)
    values = []
    for spec in specs:
        if spec.name in named:
            values.append(_as_declared(named[spec.name], spec))
        else:
            values.append(next(rest, None) if ordered else None)
            if values[-1] is None:
                values[-1] = made_up(spec, random)
    left = sum(1 for _ in rest)
    if left:
        raise UsageError(f"{left} files too many; the inputs are {_names(specs)}")
    return values


def _as_declared(value: Any, spec: ValueSpec) -> Any:
    """What files cannot say of a value: numbers are arrays without dimensions in them, and NumPy's files have
    raw bytes for the element types of `ml_dtypes`.
    """
    if not isinstance(value, np.ndarray):
        return value
    if spec.kind != "tensor":
        return value.item() if value.ndim == 0 else value
    if value.dtype.kind == "V" and spec.dtype is not None:
        return value.view(_named_dtype(spec))
    return value


def made_up(
    spec: ValueSpec,
    random: np.random.Generator,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    bounds: tuple[float, float] | None = None,
) -> Any:
    """A value that `spec` admits: random numbers, dimensions that change at their largest."""
    if spec.kind != "tensor":
        return _scalar(spec)
    name = dtype or spec.dtype or "float32"
    extents = shape if shape is not None else [_extent(n) for n in spec.shape or ()]
    kind = _named_dtype(spec, name)
    if kind.kind == "b":
        return random.integers(0, 2, extents).astype(kind)
    if kind.kind in "iu":
        low, high = bounds or (0, 1)
        return random.integers(math.ceil(low), math.floor(high), extents, endpoint=True).astype(kind)
    low, high = bounds or (0.0, 1.0)
    return random.uniform(low, high, extents).astype(kind)


def read_safetensors(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The tensors of a file.

    Raises:
        UsageError: it is damaged, or has an element type that NumPy has not.
    """
    data = path.read_bytes()
    try:
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + size])
        out = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            kind = _bfloat16(path) if entry["dtype"] == "BF16" else _SAFETENSORS[entry["dtype"]]
            content = np.frombuffer(data[8 + size + start : 8 + size + end], kind)
            out[name] = content.reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as e:
        raise UsageError(f"{path}: not a safetensors file that NumPy can hold ({e})") from None
    return out


def _bfloat16(path: Path) -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise UsageError(f"{path}: NumPy has no bfloat16 of its own: pip install ml_dtypes") from None
    return ml_dtypes.bfloat16


def _generated(text: str, known: dict[str, ValueSpec], random: np.random.Generator) -> tuple[str, Any]:
    found = _GENERATED.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is no input: a file (.npy, .npz, .safetensors) or NAME=SHAPE[:DTYPE][:LOW..HIGH],"
            " such as x=1x3x224x224:float32:0..1"
        )
    name = found["name"]
    spec = known.get(name)
    if spec is None:
        raise UsageError(f"the method has no input {name!r}; it has {_names(list(known.values()))}")
    if spec.kind != "tensor":
        return name, _number(found["shape"] or "", spec)
    shape = None
    if found["shape"] is not None:
        shape = [] if found["shape"] == "scalar" else [int(n) for n in found["shape"].split("x")]
    bounds = None
    if found["low"] is not None:
        try:
            bounds = float(found["low"]), float(found["high"])
        except ValueError:
            raise UsageError(f"{text!r}: {found['low']}..{found['high']} is no range of numbers") from None
        if not bounds[0] <= bounds[1]:
            raise UsageError(f"{text!r}: the range is empty")
    return name, made_up(spec, random, shape, found["dtype"], bounds)


def _number(text: str, spec: ValueSpec) -> int:
    if spec.kind == "int" and text.isdecimal():
        return int(text)
    raise UsageError(
        f"{spec.name} is of kind {spec.kind}: give {spec.name}=NUMBER for an int, or leave it out"
    )


def _scalar(spec: ValueSpec) -> Any:
    if spec.value is not None:
        return spec.value
    if spec.kind == "int" and spec.range is not None:
        return spec.range[1]
    return {"int": 1, "float": 1.0, "bool": True, "string": ""}.get(spec.kind)


def _extent(extent: int | DimRange) -> int:
    return extent.max if isinstance(extent, DimRange) else extent


def _named_dtype(spec: ValueSpec, name: str | None = None) -> np.dtype[Any]:
    """NumPy's element type of a name, that of the input without one; some are those of `ml_dtypes`."""
    wanted = name or spec.dtype or "float32"
    try:
        return np.dtype(wanted)
    except TypeError:
        pass
    try:
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, wanted))
    except ImportError:
        raise UsageError(f"{spec.name}: NumPy has no {wanted} of its own: pip install ml_dtypes") from None
    except AttributeError:
        raise UsageError(f"{spec.name}: no values can be made up for {wanted}; give a file") from None
    return kind


def npz(arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    """The content of an .npz file. (`numpy.savez` takes names as keywords, and some are its own.)"""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file.

    Raises:
        UsageError: it is damaged, or no such file.
        OSError: it cannot be read.
    """
    found = _load(path)
    if not isinstance(found, dict):
        raise UsageError(f"{path}: not an .npz file but a single array")
    return found


def _load(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            found = np.load(file, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else dict(found.items())
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as e:
        raise UsageError(f"{path}: not a NumPy file, or a damaged one ({e})") from None


def _names(specs: Sequence[ValueSpec]) -> str:
    return ", ".join(spec.name for spec in specs) or "none"

"""The file of a conversation: its messages, its tokens, and the buffers of the program.

A line of JSON, then the bytes of the buffers in the order in which the line names them. A file may come from
anybody: all is checked before a buffer is set, and a cache of another program is refused.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError, ProgramError

_MAGIC = "pteron conversation"
_VERSION = 1
_MOST_HEADER = 64 << 20


def write_cache(
    path: str | os.PathLike[str],
    fingerprint: str,
    tokens: Sequence[int],
    messages: Sequence[Mapping[str, Any]],
    state: Mapping[str, npt.NDArray[Any]],
) -> None:
    """Writes a file under another name, which takes its place when all is written; OSError else.

    InputError where messages (with images in them) are more than 64 MB."""
    buffers = {
        name: {"dtype": array.dtype.name, "shape": array.shape, "bytes": array.nbytes}
        for name, array in state.items()
    }
    header = {
        "file": _MAGIC,
        "version": _VERSION,
        "program": fingerprint,
        "tokens": list(tokens),
        "messages": list(messages),
        "buffers": buffers,
    }
    line = json.dumps(header).encode() + b"\n"
    if len(line) > _MOST_HEADER:
        raise InputError("the messages of a conversation are too long for a file", got=f"{len(line)} bytes")
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.resolve().parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(line)
            for array in state.values():
                file.write(np.ascontiguousarray(array).tobytes())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def read_cache(
    path: str | os.PathLike[str], fingerprint: str
) -> tuple[list[int], list[dict[str, Any]], dict[str, npt.NDArray[Any]]]:
    """Tokens, messages and buffers. ProgramError for a damaged file, InputError for another program's."""
    with Path(path).open("rb") as file:
        header = _header(file.readline(_MOST_HEADER))
        if header["program"] != fingerprint:
            raise InputError(
                "the conversation was saved with another program",
                expected=f"the program {fingerprint[:16]}",
                got=f"the program {str(header['program'])[:16]}",
                hint="restore it with the folder that it was saved with",
            )
        if sum(entry["bytes"] for entry in header["buffers"].values()) > os.fstat(file.fileno()).st_size:
            raise _damaged("it ends inside a buffer")
        state = {}
        for name, entry in header["buffers"].items():
            content = file.read(entry["bytes"])
            if len(content) != entry["bytes"]:
                raise _damaged("it ends inside its last buffer")
            state[name] = np.frombuffer(content, _dtype(entry["dtype"])).reshape(entry["shape"])
        if file.read(1):
            raise _damaged("bytes follow its last buffer")
    return header["tokens"], header["messages"], state


def _header(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged("its first line is no JSON") from None
    if not isinstance(found, dict) or found.get("file") != _MAGIC or found.get("version") != _VERSION:
        raise _damaged("it is of another kind or version")
    tokens, messages, buffers = (found.get(name) for name in ("tokens", "messages", "buffers"))
    is_right = (
        isinstance(tokens, list)
        and all(type(token) is int for token in tokens)
        and isinstance(messages, list)
        and all(isinstance(message, dict) and "role" in message for message in messages)
        and isinstance(buffers, dict)
        and all(_is_buffer(entry) for entry in buffers.values())
    )
    if not is_right:
        raise _damaged("its first line does not state tokens, messages and buffers")
    return {"program": found.get("program"), "tokens": tokens, "messages": messages, "buffers": buffers}


def _is_buffer(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("shape"), list):
        return False
    shape, size = entry["shape"], entry.get("bytes")
    if not all(type(extent) is int and extent >= 0 for extent in [*shape, size]) or len(shape) > 16:
        return False
    try:
        width = _dtype(entry.get("dtype")).itemsize
    except (ProgramError, TypeError):
        return False
    return math.prod(shape) * width == size


def _dtype(name: Any) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        wide: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return wide
    if name not in ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"):
        raise _damaged(f"a buffer has the element type {str(name)[:40]}")
    found: np.dtype[Any] = np.dtype(name)
    return found


def _damaged(what: str) -> ProgramError:
    return ProgramError(f"the file of a conversation cannot be used: {what}")

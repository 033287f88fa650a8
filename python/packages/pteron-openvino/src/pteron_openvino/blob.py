"""The blob: what the compile half writes into the program, and the run half reads. Imports neither library.

    magic "PTOV" · version (u16) · nothing (u16) · length of the head (u32) · SHA-256 of all that follows
    head: JSON with the fields of `Head`
    model: OpenVINO IR, XML; its constants are offsets into the named data `weights`

The digest finds damage, not malice: whoever writes a file can write its digest too. That a digest is right
says nothing about what OpenVINO's reader makes of the model.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict, dataclass
from typing import Any

#: Name of the backend in program files.
BACKEND = "PteronOpenvinoBackend"

_PREFIX = struct.Struct("<4sHHI32s")
_MAGIC, _VERSION = b"PTOV", 1


class BlobError(ValueError):
    """The blob is damaged, or of a version that this package does not know."""


@dataclass(frozen=True)
class State:
    """A buffer that calls change: its name, element type and extents, and the key of its first value."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    key: str


@dataclass(frozen=True)
class Head:
    """What the run half has to know of a model.

    Attributes:
        library: the version of OpenVINO that wrote the model.
        weights: key of the constants in named data; None: there are none.
        weights_size: their bytes.
        states: buffers that calls change; they are the first inputs, and the first results are their new
            values.
        inputs, outputs: element types of what crosses the border, states not counted.
    """

    library: str
    weights: str | None
    weights_size: int
    states: tuple[State, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def written(head: Head, model: bytes) -> bytes:
    """The blob; the same arguments give the same bytes."""
    text = json.dumps(asdict(head), sort_keys=True, separators=(",", ":")).encode()
    content = text + model
    return _PREFIX.pack(_MAGIC, _VERSION, 0, len(text), hashlib.sha256(content).digest()) + content


def read(blob: memoryview) -> tuple[Head, bytes]:
    """Head and model.

    Raises:
        BlobError: it is cut off, changed, of another version or of another backend.
    """
    if len(blob) < _PREFIX.size or bytes(blob[:4]) != _MAGIC:
        raise BlobError(f"this is no blob of {BACKEND}: it begins with {bytes(blob[:4])!r}, not {_MAGIC!r}")
    _, version, _, length, digest = _PREFIX.unpack_from(blob)
    if version != _VERSION:
        raise BlobError(f"the blob has version {version}, this package reads version {_VERSION}: update it")
    content = bytes(blob[_PREFIX.size :])
    if hashlib.sha256(content).digest() != digest or length > len(content):
        raise BlobError("the blob is damaged: its digest is another one than it states")
    try:
        return _head(json.loads(content[:length])), content[length:]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BlobError(f"the head of the blob is not as version {_VERSION} has it: {error}") from error


def _head(fields: dict[str, Any]) -> Head:
    states = tuple(
        State(str(s["name"]), str(s["dtype"]), tuple(int(d) for d in s["shape"]), str(s["key"]))
        for s in fields["states"]
    )
    weights = fields["weights"]
    return Head(
        str(fields["library"]),
        None if weights is None else str(weights),
        int(fields["weights_size"]),
        states,
        tuple(map(str, fields["inputs"])),
        tuple(map(str, fields["outputs"])),
    )

"""ETDump files as bytes: FlatBuffers behind a length of four bytes, as ExecuTorch writes them.

Files come from elsewhere: whatever is in one, reading it ends in objects of no more memory than a multiple of
its size, or in an `EtdumpError`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pteron.devtools.etdump import schema
from pteron.errors import PteronError

IDENTIFIER = b"ED00"


class EtdumpError(PteronError, ValueError):
    """The bytes are no ETDump file, or a damaged one."""


@dataclass(frozen=True)
class _Scalar:
    """A number in a table: its code in the `struct` module, its size in bytes, its default, and the words
    that objects have for it.
    """

    code: str
    size: int
    default: Any = 0
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Table:
    """A table that another one points at, or (`is_vector`) a vector of them."""

    type: type[Any]
    is_vector: bool = False


_BOOL = _Scalar("?", 1, False)
_BYTE = _Scalar("b", 1)
_KIND = _Scalar("b", 1, schema.VALUE_KINDS[0], schema.VALUE_KINDS)
_INT = _Scalar("i", 4)
_ID = _Scalar("i", 4, -1)
_UINT = _Scalar("I", 4)
_LONG = _Scalar("q", 8)
_ULONG = _Scalar("Q", 8)
_FLOAT = _Scalar("f", 4, 0.0)
_DOUBLE = _Scalar("d", 8, 0.0)
_STRING, _BYTES, _LONGS = "string", "bytes", "longs"
_Field = _Scalar | _Table | str

#: Table → its fields in the order of their slots.
_FIELDS: dict[type[Any], dict[str, _Field]] = {
    schema.Tensor: {"scalar_type": _BYTE, "sizes": _LONGS, "strides": _LONGS, "offset": _LONG},
    schema.TensorList: {"tensors": _Table(schema.Tensor, is_vector=True)},
    schema.Int: {"int_val": _LONG},
    schema.Bool: {"bool_val": _BOOL},
    schema.Float: {"float_val": _FLOAT},
    schema.Double: {"double_val": _DOUBLE},
    schema.Value: {
        "val": _KIND,
        "tensor": _Table(schema.Tensor),
        "tensor_list": _Table(schema.TensorList),
        "int_value": _Table(schema.Int),
        "float_value": _Table(schema.Float),
        "double_value": _Table(schema.Double),
        "bool_value": _Table(schema.Bool),
        "output": _Table(schema.Bool),
    },
    schema.DebugEvent: {
        "chain_index": _ULONG,
        "instruction_id": _ID,
        "debug_entry": _Table(schema.Value),
        "delegate_debug_id_int": _ID,
        "delegate_debug_id_str": _STRING,
        "name": _STRING,
    },
    schema.AllocationEvent: {"allocator_id": _INT, "allocation_size": _ULONG},
    schema.ProfileEvent: {
        "name": _STRING,
        "chain_index": _INT,
        "instruction_id": _ID,
        "delegate_debug_id_int": _ID,
        "delegate_debug_id_str": _STRING,
        "delegate_debug_metadata": _BYTES,
        "start_time": _ULONG,
        "end_time": _ULONG,
    },
    schema.Event: {
        "profile_event": _Table(schema.ProfileEvent),
        "allocation_event": _Table(schema.AllocationEvent),
        "debug_event": _Table(schema.DebugEvent),
    },
    schema.Allocator: {"name": _STRING},
    schema.RunData: {
        "name": _STRING,
        "bundled_input_index": _ID,
        "allocators": _Table(schema.Allocator, is_vector=True),
        "events": _Table(schema.Event, is_vector=True),
    },
    schema.ETDump: {"version": _UINT, "run_data": _Table(schema.RunData, is_vector=True)},
}


def write_etdump(dump: schema.ETDump, *, size_prefixed: bool = True) -> bytes:
    """The bytes of a file, with its length in front or without.

    Raises:
        EtdumpError: a number does not fit its field.
    """
    try:
        return _Writer(4 if size_prefixed else 0).file(dump)
    except (struct.error, ValueError) as error:
        raise EtdumpError(f"a number does not fit its field of an ETDump: {error}") from None


class _Writer:
    """Tables from the root down: everything points forward, places are filled in when they are known."""

    def __init__(self, prefix: int) -> None:
        self._out = bytearray(prefix)
        self._vtables: dict[bytes, int] = {}

    def file(self, dump: schema.ETDump) -> bytes:
        start = len(self._out)
        self._out += bytes(4) + IDENTIFIER
        self._point(start, self._table(dump))
        if start:
            struct.pack_into("<I", self._out, 0, len(self._out) - start)
        return bytes(self._out)

    def _table(self, value: Any) -> int:
        """Writes a table and what it points at; where it begins."""
        stored = [
            (slot, name, kind)
            for slot, (name, kind) in enumerate(_FIELDS[type(value)].items())
            if _is_stored(kind, getattr(value, name))
        ]
        # The widest fields first, behind the four bytes that lead to the vtable: no gaps between them.
        stored.sort(key=lambda each: -_width(each[2]))
        size, places = 4, {}
        for slot, _, kind in stored:
            width = _width(kind)
            size += -size % width
            places[slot] = size
            size += width
        entries = [places.get(slot, 0) for slot in range(max(places, default=-1) + 1)]
        vtable = self._vtable(struct.pack(f"<{len(entries) + 2}H", 4 + 2 * len(entries), size, *entries))
        self._align(8)
        at = len(self._out)
        self._out += bytes(size)
        struct.pack_into("<i", self._out, at, at - vtable)
        for slot, name, kind in stored:
            self._field(kind, at + places[slot], getattr(value, name))
        return at

    def _field(self, kind: _Field, at: int, value: Any) -> None:
        if isinstance(kind, _Scalar):
            number = kind.words.index(value) if kind.words else value
            struct.pack_into(f"<{kind.code}", self._out, at, number)
        elif isinstance(kind, _Table):
            self._point(at, self._vector(value) if kind.is_vector else self._table(value))
        elif kind == _LONGS:
            # The numbers lie at multiples of eight, their count in the four bytes before them.
            self._align(8, behind=4)
            self._point(at, len(self._out))
            self._out += struct.pack(f"<I{len(value)}q", len(value), *value)
        else:
            self._point(at, self._text(value.encode() if kind == _STRING else value, kind))

    def _text(self, data: bytes, kind: str) -> int:
        self._align(4)
        at = len(self._out)
        self._out += struct.pack("<I", len(data)) + data + (b"\0" if kind == _STRING else b"")
        return at

    def _vector(self, members: list[Any]) -> int:
        self._align(4)
        at = len(self._out)
        self._out += struct.pack("<I", len(members)) + bytes(4 * len(members))
        for index, member in enumerate(members):
            self._point(at + 4 + 4 * index, self._table(member))
        return at

    def _vtable(self, data: bytes) -> int:
        if data not in self._vtables:
            self._align(2)
            self._vtables[data] = len(self._out)
            self._out += data
        return self._vtables[data]

    def _point(self, at: int, target: int) -> None:
        struct.pack_into("<I", self._out, at, target - at)

    def _align(self, to: int, behind: int = 0) -> None:
        self._out += bytes(-(len(self._out) + behind) % to)


def _is_stored(kind: _Field, value: Any) -> bool:
    return value != kind.default if isinstance(kind, _Scalar) else value is not None


def _width(kind: _Field) -> int:
    return kind.size if isinstance(kind, _Scalar) else 4


def read_etdump(data: bytes) -> schema.ETDump:
    """The contents of a file, with its length in front or without.

    Raises:
        EtdumpError: the bytes are no ETDump file, or a damaged one.
    """
    data = bytes(data)
    if data[8:12] == IDENTIFIER:
        (length,) = struct.unpack_from("<I", data)
        if length > len(data) - 4:
            raise EtdumpError(
                "the ETDump file is cut off", expected=f"{length + 4} bytes", got=f"{len(data)} bytes"
            )
        start = 4
    elif data[4:8] == IDENTIFIER:
        start = 0
    else:
        raise EtdumpError(
            "this is no ETDump file",
            expected=f"the identifier {IDENTIFIER.decode()} in its first 12 bytes",
            got=f"{len(data)} bytes that begin with {data[:12].hex() or 'nothing'}",
        )
    try:
        dump: schema.ETDump = _Reader(data).table(schema.ETDump, _Reader.target(data, start))
    except (struct.error, UnicodeDecodeError) as error:
        raise EtdumpError(f"the ETDump file is damaged: {error}") from None
    return dump


class _Reader:
    """Tables by their offsets. Every table costs bytes of the file; texts that several tables share are read
    once: so the objects are not larger than the file allows.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._tables_left = len(data) // 4
        self._bytes_left = len(data)
        self._shared: dict[tuple[str, int], Any] = {}

    @staticmethod
    def target(data: bytes, at: int) -> int:
        """Where an offset leads."""
        return at + int(struct.unpack_from("<I", data, at)[0])

    def table(self, kind: type[Any], at: int) -> Any:
        self._tables_left -= 1
        if self._tables_left < 0:
            raise EtdumpError("the ETDump file is damaged: more tables than it has room for")
        vtable = at - struct.unpack_from("<i", self._data, at)[0]
        if vtable < 0:
            raise EtdumpError("the ETDump file is damaged: a table without its list of fields")
        (size,) = struct.unpack_from("<H", self._data, vtable)
        found: dict[str, Any] = {}
        for slot, (name, each) in enumerate(_FIELDS[kind].items()):
            entry = 4 + 2 * slot
            place = struct.unpack_from("<H", self._data, vtable + entry)[0] if entry + 2 <= size else 0
            if place:
                found[name] = self._field(each, at + place)
        return kind(**found)

    def _field(self, kind: _Field, at: int) -> Any:
        if isinstance(kind, _Scalar):
            number = struct.unpack_from(f"<{kind.code}", self._data, at)[0]
            if not kind.words:
                return number
            if not 0 <= number < len(kind.words):
                raise EtdumpError("the ETDump file is damaged: a value of no known kind", got=str(number))
            return kind.words[number]
        target = self.target(self._data, at)
        if isinstance(kind, _Table):
            return self._vector(kind.type, target) if kind.is_vector else self.table(kind.type, target)
        key = kind, target
        if key not in self._shared:
            self._shared[key] = self._plain(kind, target)
        return self._shared[key]

    def _plain(self, kind: str, at: int) -> Any:
        (count,) = struct.unpack_from("<I", self._data, at)
        length = count * (8 if kind == _LONGS else 1)
        self._bytes_left -= length
        if self._bytes_left < 0:
            raise EtdumpError("the ETDump file is damaged: texts and lists that overlap")
        data = self._slice(at + 4, length)
        if kind == _LONGS:
            return list(struct.unpack(f"<{count}q", data))
        return data.decode() if kind == _STRING else data

    def _vector(self, kind: type[Any], at: int) -> list[Any]:
        (count,) = struct.unpack_from("<I", self._data, at)
        self._slice(at + 4, 4 * count)
        starts = (at + 4 + 4 * index for index in range(count))
        return [self.table(kind, self.target(self._data, start)) for start in starts]

    def _slice(self, start: int, length: int) -> bytes:
        if start + length > len(self._data):
            raise EtdumpError("the ETDump file is damaged: something reaches beyond its end")
        return self._data[start : start + length]

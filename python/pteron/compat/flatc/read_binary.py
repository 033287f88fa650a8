"""The binary form of a schema to JSON, with every default spelled out, as `flatc --defaults-json` gives
it.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from pteron.compat.flatc.schema import OFFSET_SIZE, SCALARS, Enum, Schema, SchemaError, Struct, Type


def read_binary(
    schema: Schema, data: bytes, *, needs_identifier: bool = True, as_objects: bool = False
) -> dict[str, Any]:
    """The root table as a dict that `json.dumps` takes.

    `as_objects`: for Python objects instead: vectors of ubyte as bytes, enums as numbers, and vectors and
    text that are absent as empty ones.

    Raises:
        SchemaError: the bytes are damaged, or of another schema.
    """
    if schema.root is None:
        raise SchemaError("the schema has no root_type")
    if needs_identifier and schema.identifier is not None and data[4:8] != schema.identifier:
        raise SchemaError(f"the file identifier is {data[4:8]!r}, the schema has {schema.identifier!r}")
    try:
        return _Reader(data, as_objects).table(schema.root, _offset(data, 0))
    except (struct.error, IndexError, UnicodeDecodeError, RecursionError) as error:
        raise SchemaError(f"the data is damaged: {error}") from None


_BYTES = ("ubyte", "uint8")


class _Reader:
    def __init__(self, data: bytes, as_objects: bool) -> None:
        self._data = data
        self._as_objects = as_objects

    def table(self, table: Struct, at: int) -> dict[str, Any]:
        (back,) = struct.unpack_from("<i", self._data, at)
        vtable = at - back
        if vtable < 0:
            raise SchemaError("the data is damaged: a table without a vtable")
        (size,) = struct.unpack_from("<H", self._data, vtable)
        found: dict[str, Any] = {}
        for each in table.fields:
            entry = 4 + 2 * each.slot
            place = struct.unpack_from("<H", self._data, vtable + entry)[0] if entry + 2 <= size else 0
            if each.is_deprecated:
                continue
            if each.type.union is not None:
                if place:
                    member = self._member(each.type.union, found.get(f"{each.name}_type"), at + place)
                    found[each.name] = member
            elif place:
                found[each.name] = self._value(each.type, at + place)
            elif each.default is not None:
                found[each.name] = self._shown(each.type, each.default)
            elif self._as_objects and each.type.item is not None:
                is_bytes = each.type.item.scalar in _BYTES
                found[each.name] = b"" if is_bytes else []
            elif self._as_objects and each.type.is_string:
                found[each.name] = ""
        return found

    def _member(self, union: Enum, kind: Any, at: int) -> Any:
        member = union.members.get(kind) if isinstance(kind, str) else None
        if member is None:
            raise SchemaError(f"{union.name}: a member of type {kind!r}")
        return self._value(member, at)

    def _value(self, kind: Type, at: int) -> Any:
        if kind.scalar is not None:
            (number,) = struct.unpack_from("<" + SCALARS[kind.scalar][1], self._data, at)
            return self._shown(kind, number)
        if kind.is_inline_struct:
            assert kind.struct is not None
            return {each.name: self._value(each.type, at + each.offset) for each in kind.struct.fields}
        target = _offset(self._data, at)
        if kind.is_string:
            start, length = self._length(target)
            return self._slice(start, length).decode()
        if kind.item is not None:
            return self._vector(kind.item, target)
        assert kind.struct is not None
        return self.table(kind.struct, target)

    def _vector(self, item: Type, at: int) -> Any:
        start, length = self._length(at)
        size = item.inline_size
        if item.scalar is not None and item.enum is None:
            data = self._slice(start, length * size)
            if self._as_objects and item.scalar in _BYTES:
                return data
            numbers = struct.unpack(f"<{length}{SCALARS[item.scalar][1]}", data)
            return [self._shown(item, each) for each in numbers]
        self._slice(start, length * size)
        return [self._value(item, start + index * size) for index in range(length)]

    def _shown(self, kind: Type, number: Any) -> Any:
        if kind.enum is not None and kind.enum.is_union:
            return kind.enum.name_of(number) or number
        if kind.enum is not None:
            return number if self._as_objects else kind.enum.name_of(number) or number
        # The shortest decimal that is this number at its width.
        return float(str(np.float32(number))) if kind.scalar in ("float", "float32") else number

    def _length(self, at: int) -> tuple[int, int]:
        return at + OFFSET_SIZE, struct.unpack_from("<I", self._data, at)[0]

    def _slice(self, start: int, length: int) -> bytes:
        if start + length > len(self._data):
            raise SchemaError("the data is damaged: a vector reaches beyond its end")
        return self._data[start : start + length]


def _offset(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])

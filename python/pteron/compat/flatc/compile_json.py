"""JSON to the binary form of a schema, in the order in which `flatc` writes: what a table points at comes
first, in the order of the JSON; its own fields go from the widest to the narrowest, the last slot first.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers

from pteron.compat.flatc.schema import SCALARS, Enum, Field, Schema, SchemaError, Struct, Type

_WIDTHS = (8, 4, 2, 1)


def compile_json(schema: Schema, value: Mapping[str, Any]) -> bytes:
    """The binary form of `value`, which is read from JSON.

    Raises:
        SchemaError: the value does not fit the schema.
    """
    if schema.root is None:
        raise SchemaError("the schema has no root_type")
    builder = _Builder(1024)
    root = _Writer(builder).table(schema.root, value)
    if schema.identifier is not None:
        builder.Finish(root, file_identifier=schema.identifier)
    else:
        builder.Finish(root)
    return bytes(builder.Output())


class _Builder(flatbuffers.Builder):  # type: ignore[misc]
    """A builder that shares the field table of two objects only where they have one size too, as the
    compiler does. Older versions of `flatbuffers` (25.2 is one) do not look at the size.
    """

    def WriteVtable(self) -> int:  # noqa: N802 -- overrides
        """Ends the object that is being written; its offset."""
        self.PrependSOffsetTRelative(0)
        end = int(self.Offset())
        slots: Any = self.current_vtable  # type: ignore[has-type]
        places = [end - place if place else 0 for place in slots]
        while places and places[-1] == 0:
            places.pop()
        key = (end - self.objectEnd, *places)
        start = len(self.Bytes) - end
        known = self.vtables.get(key)
        if known is None:
            for number in (*reversed(places), key[0], 2 * (len(places) + 2)):
                self.PrependVOffsetT(number)
            known = self.vtables[key] = self.Offset()
            start = len(self.Bytes) - end
        else:
            self.head = start
        struct.pack_into("<i", self.Bytes, start, known - end)
        self.current_vtable = None
        return end


class _Writer:
    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def table(self, table: Struct, value: Mapping[str, Any]) -> int:
        """Writes a table; its offset."""
        if not isinstance(value, Mapping):
            raise SchemaError(f"{table.name}: expected an object, got {type(value).__name__}")
        stored: dict[int, tuple[Field, Any]] = {}
        for name, given in value.items():
            found = table.named(name)
            if found is None or found.is_deprecated:
                raise SchemaError(f"{table.name} has no field {name!r}")
            if given is not None:
                stored[found.slot] = (found, self._prepared(table, found, given, value))
        missing = [each.name for each in table.fields if each.is_required and each.slot not in stored]
        if missing:
            raise SchemaError(f"{table.name}: field {missing[0]!r} is required")
        builder = self._builder
        builder.StartObject(max((each.slot for each in table.fields), default=-1) + 1)
        for width in _WIDTHS:
            for slot in sorted(stored, reverse=True):
                found, prepared = stored[slot]
                if _width(found.type) == width:
                    self._add(found, prepared)
        return int(builder.EndObject())

    def _prepared(self, table: Struct, found: Field, given: Any, value: Mapping[str, Any]) -> Any:
        """A number, the bytes of a struct, or the offset of what was written for the field."""
        if found.type.union is not None:
            kind = value.get(f"{found.name}_type")
            if kind is None:
                raise SchemaError(f"{table.name}.{found.name}: {found.name}_type is missing")
            return self._member(found.type.union, kind, given)
        return self._value(found.type, given, f"{table.name}.{found.name}", found.force_align)

    def _member(self, union: Enum, kind: Any, given: Any) -> int:
        name = kind if isinstance(kind, str) else union.name_of(int(kind))
        if name is None or name not in union.members:
            raise SchemaError(f"{union.name} has no member {kind!r}")
        return int(self._value(union.members[name], given, f"{union.name}.{name}"))

    def _value(self, kind: Type, given: Any, where: str, force_align: int | None = None) -> Any:
        if kind.scalar is not None:
            return number(kind, given, where)
        if kind.is_string:
            if not isinstance(given, str):
                raise SchemaError(f"{where}: expected text, got {given!r}")
            return self._builder.CreateString(given)
        if kind.item is not None:
            return self._vector(kind.item, given, where, force_align)
        assert kind.struct is not None
        if not kind.is_inline_struct:
            return self.table(kind.struct, given)
        # The compiler writes a struct, keeps its bytes and takes them back; what aligned it stays.
        self._builder.Prep(kind.struct.alignment, 0)
        return struct_bytes(kind.struct, given)

    def _vector(self, item: Type, given: Any, where: str, force_align: int | None) -> int:
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise SchemaError(f"{where}: expected a list, got {type(given).__name__}")
        values = [self._value(item, each, where) for each in given]
        builder, size = self._builder, item.inline_size
        if force_align is not None and values:
            builder.Prep(force_align, len(values) * size)
        builder.StartVector(size, len(values), item.inline_alignment if values else 1)
        if item.scalar is not None or item.is_inline_struct:
            packed = _packed(item, values)
            builder.head -= len(packed)
            while builder.head < 0:
                grown = len(builder.Bytes)
                builder.growByteBuffer()
                builder.head += len(builder.Bytes) - grown
            builder.Bytes[builder.head : builder.head + len(packed)] = packed
        else:
            for offset in reversed(values):
                builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    def _add(self, found: Field, prepared: Any) -> None:
        builder, kind = self._builder, found.type
        if kind.scalar is not None:
            if found.default is not None and prepared == found.default:
                return
            size, code = SCALARS[kind.scalar]
            builder.Prep(size, 0)
            builder.head -= size
            struct.pack_into("<" + code, builder.Bytes, builder.head, prepared)
            builder.Slot(found.slot)
        elif kind.is_inline_struct:
            assert kind.struct is not None
            builder.Prep(kind.struct.alignment, kind.struct.size)
            builder.head -= len(prepared)
            builder.Bytes[builder.head : builder.head + len(prepared)] = prepared
            builder.Slot(found.slot)
        else:
            builder.PrependUOffsetTRelativeSlot(found.slot, prepared, 0)


def _width(kind: Type) -> int:
    return SCALARS[kind.scalar][0] if kind.scalar is not None else 4


def _packed(item: Type, values: list[Any]) -> bytes:
    if item.scalar is None:
        return b"".join(values)
    return struct.pack(f"<{len(values)}{SCALARS[item.scalar][1]}", *values)


def struct_bytes(struct_type: Struct, given: Mapping[str, Any]) -> bytes:
    """A struct as it lies in line; all fields must be given."""
    parts = []
    for each in struct_type.fields:
        if each.name not in given:
            raise SchemaError(f"{struct_type.name}: field {each.name!r} is missing")
        value = given[each.name]
        if each.type.scalar is not None:
            where = f"{struct_type.name}.{each.name}"
            parts.append(struct.pack("<" + SCALARS[each.type.scalar][1], number(each.type, value, where)))
        else:
            assert each.type.struct is not None
            parts.append(struct_bytes(each.type.struct, value))
        parts.append(bytes(each.padding))
    return b"".join(parts)


def number(kind: Type, given: Any, where: str) -> Any:
    """A JSON value as the number that is stored: names of enums, "inf" and "nan", truth values."""
    assert kind.scalar is not None
    code = SCALARS[kind.scalar][1]
    try:
        if kind.enum is not None and isinstance(given, str):
            return _enum_number(kind.enum, given)
        if code in "fd":
            made = float(given)
            # As it is stored, so that it compares with the default as the stored value does.
            return struct.unpack("<f", struct.pack("<f", made))[0] if code == "f" else made
        if code == "?":
            return {"true": True, "false": False}.get(given, given) if isinstance(given, str) else bool(given)
        if isinstance(given, float) and not (math.isfinite(given) and given.is_integer()):
            raise ValueError("not an integer")
        made = int(given, 0) if isinstance(given, str) else int(given)
        struct.pack("<" + code, made)
        return made
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise SchemaError(f"{where}: {given!r} is no {kind.scalar}: {error}") from None


def _enum_number(enum: Enum, given: str) -> int:
    total = 0
    for part in given.split():
        name = part.rpartition(".")[2]
        if name in enum.values:
            total |= enum.values[name]
        elif part.lstrip("-").isdigit():
            total |= int(part)
        else:
            raise SchemaError(f"{enum.name} has no value {part!r}")
    return total

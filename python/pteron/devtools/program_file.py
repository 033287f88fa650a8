"""A program file as objects that can be changed and written again, without torch.

The objects have the names of `schema/program.fbs`. As for the native writer, stored bytes are beside the
table: `constant_buffer`, `mutable_data` (entry 0 of both is empty and stands for "no data"),
`backend_delegate_data` and `named_data` of the program; the writer makes segments of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pteron import _native
from pteron._native import Program
from pteron.compat import flatc
from pteron.compat.flatc.read_binary import read_binary
from pteron.compat.flatc.schema import Schema, Struct, Type, read_schema
from pteron.devtools.bundle_part import program_part
from pteron.devtools.description import describe

#: Named data with packed weights; it says where in the constants the plain ones are.
PACKED_KEY = "pteron.packed"
#: Alignment of packs in the file, in bytes: a cache line.
PACK_ALIGNMENT = 64
#: `ExtraTensorInfo.location`.
IN_FILE, EXTERNAL = 0, 1
_HEADER = struct.Struct("<4sIQQ")
#: Of what a file happens to have, no more is kept: a page for segments, a segment's default for named data.
_MOST_ALIGNMENT, _MOST_NAMED = 4096, 128
#: Absent fields that the writer knows by None: an empty one would mean something else.
_NONE_IF_EMPTY = {"non_const_buffer_device", "stacktrace", "fully_qualified_name"}


class ProgramFile:
    """The objects of one program: `table` is a `Program` of the schema."""

    def __init__(self, table: Any, alignments: dict[str, Any]) -> None:
        self.table = table
        self._alignments = alignments

    def plan(self, method: str) -> Any:
        """The `ExecutionPlan` of a method.

        Raises:
            KeyError: there is none.
        """
        for plan in self.table.execution_plan:
            if plan.name == method:
                return plan
        raise KeyError(method)

    def with_table(self, table: Any) -> ProgramFile:
        """Another program, aligned as this one."""
        return ProgramFile(table, self._alignments)

    def to_bytes(self) -> bytes:
        """The file, aligned as the one that was read.

        Raises:
            PteronError: the objects break a rule of the format.
        """
        return written(*_native.layout_program(self.table, **self._alignments))

    def drop_named(self, prefix: str) -> bool:
        """Takes out named data whose key is `prefix` or begins with it and a point; whether there was any."""
        kept = [
            named
            for named in self.table.named_data
            if named.key != prefix and not named.key.startswith(f"{prefix}.")
        ]
        dropped = len(kept) < len(self.table.named_data)
        self.table.named_data = kept
        return dropped

    def pack(self, progress: Callable[[int, int], object] | None = None) -> int:
        """Stores the weights packed, as load would pack them, beside the plain ones; the number of packs.

        `progress` is called with (bytes of weights that are done, bytes of weights in all); what it raises
        ends the work.

        Raises:
            PteronError: a method cannot be loaded, or its constants are in data files.
        """
        self.drop_named(PACKED_KEY)
        index, *packs = _native.pack_weights(self.to_bytes(), progress)
        if packs:
            self.table.named_data += [named(key, data, PACK_ALIGNMENT) for key, data in (index, *packs)]
            # Debug information stays last, so that stripping it shortens the file.
            self.table.named_data.sort(key=lambda one: one.key == "pteron.debug")
        return len(packs)


def is_pack(key: str) -> bool:
    """Whether named data of this key belong to packed weights: one pack, or the list of them."""
    return key == PACKED_KEY or key.startswith(f"{PACKED_KEY}.")


def read_program(program: Program, content: bytes) -> ProgramFile:
    """The objects of `program`, which was loaded from `content`. Stored bytes are views of `content`.

    Raises:
        ValueError: the table cannot be read.
    """
    part = program_part(content)
    magic, _, size, base = _HEADER.unpack_from(part, 8)
    has_header = magic == b"eh00"
    data = bytes(part[: size if has_header else len(part)])
    members = read_binary(_schema(), data, as_objects=True)
    root = _schema().root
    assert root is not None
    table = _object(root, members)
    references = [delegate.processed for plan in table.execution_plan for delegate in plan.delegates]
    constants = table.constant_segment.offsets if table.constant_segment is not None else []
    starts = [base + segment.offset if has_header else 0 for segment in table.segments]
    alignments = {
        "extract_delegate_segments": not references or any(one.location for one in references),
        "segment_alignment": _alignment(starts, 128),
        "constant_tensor_alignment": _alignment(constants, 16),
    }
    _fill_named(table, program, starts)
    _fill_stored(table, program, part)
    return ProgramFile(table, alignments)


def named(key: str, data: bytes | memoryview, alignment: int) -> Any:
    """An entry of `named_data`."""
    return new("NamedData", key=key, data=data, alignment=alignment)


def new(name: str, /, **members: Any) -> Any:
    """An object of a table of the schema; the writer tells members of unions apart by the name."""
    return _class(name)(**members)


def written(head: bytes, pieces: Iterable[tuple[int, memoryview]], size: int) -> bytes:
    """A layout of the native writer as the bytes of a file."""
    out = bytearray(size)
    out[: len(head)] = head
    for offset, piece in pieces:
        out[offset : offset + len(piece)] = piece
    return bytes(out)


def _fill_stored(table: Any, program: Program, part: memoryview) -> None:
    """Constants, first contents of buffers and blobs of delegates; their order stays."""
    stored: dict[str, dict[int, memoryview]] = {"constant_buffer": {}, "mutable_data": {}}
    blobs: list[Any] = []
    for plan, method in zip(table.execution_plan or [], describe(program).methods.values(), strict=True):
        for tensor in method.tensors.values():
            span = (tensor.stored or {}).get("range")
            value = plan.values[tensor.index].val
            if span is None or not value.data_buffer_idx:
                continue
            kind = "constant_buffer" if value.allocation_info is None else "mutable_data"
            seen = stored[kind].get(value.data_buffer_idx, b"")
            # Views of one constant may have fewer elements.
            if span[1] - span[0] >= len(seen):
                stored[kind][value.data_buffer_idx] = part[span[0] : span[1]]
        for delegate, known in zip(plan.delegates, method.delegates, strict=True):
            start, end = known["blob"]
            delegate.processed = new("BackendDelegateDataReference", location=0, index=len(blobs))
            blobs.append(new("BackendDelegateInlineData", data=part[start:end]))
    for kind, found in stored.items():
        entries = [found.get(at, b"") for at in range(max(found, default=0) + 1)]
        setattr(table, kind, [new("Buffer", storage=entry) for entry in entries])
    table.backend_delegate_data = blobs


def _fill_named(table: Any, program: Program, starts: list[int]) -> None:
    content = program.named_data
    table.named_data = [
        named(entry.key, content[entry.key], min(_alignment([starts[entry.segment_index]], 1), _MOST_NAMED))
        for entry in table.named_data
    ]


def _alignment(places: Iterable[int], least: int) -> int:
    """The largest power of two that divides all places, within bounds."""
    common = math.gcd(*places)
    return max(least, min(common & -common, _MOST_ALIGNMENT)) if common else least


def _object(struct: Struct, members: dict[str, Any]) -> Any:
    """A table as an object; what is absent is None."""
    found: dict[str, Any] = {}
    for field in struct.fields:
        value = members.get(field.name)
        if field.type.union is not None:
            member = field.type.union.members.get(members.get(f"{field.name}_type", ""))
            value = None if member is None or value is None else _value(member, value)
        elif field.name.endswith("_type") and field.type.enum is not None and field.type.enum.is_union:
            continue
        elif value is not None:
            value = _value(field.type, value)
        found[field.name] = None if field.name in _NONE_IF_EMPTY and not value else value
    return new(struct.name.rpartition(".")[2], **found)


def _value(kind: Type, value: Any) -> Any:
    if kind.struct is not None:
        return _object(kind.struct, value)
    if kind.item is not None and kind.item.struct is not None:
        return [_object(kind.item.struct, item) for item in value]
    return value


@cache
def _class(name: str) -> type[SimpleNamespace]:
    return type(name, (SimpleNamespace,), {})


@cache
def _schema() -> Schema:
    return read_schema(Path(flatc.__file__).parent / "schemas" / "program.fbs")

"""A program file read back as the objects that it was written from."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pteron.compat import flatc
from pteron.compat.exir.cord import Cord
from pteron.compat.exir.dataclass_json import _DataclassEncoder, _json_to_dataclass
from pteron.compat.flatc.compile_json import compile_json
from pteron.compat.flatc.read_binary import read_binary
from pteron.compat.flatc.schema import Schema, read_schema
from pteron.exir.backend.named_data_store import DataEntry, NamedDataStoreOutput
from pteron.exir.memory.memory_planning_pass import MINIMUM_ALIGNMENT
from pteron.exir.schema import (
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    DataLocation,
    NamedData,
    Program,
    SubsegmentOffsets,
    Tensor,
)
from pteron.exir.serialize.serialize_program import serialize_program

_SCHEMA_FILE = Path(flatc.__file__).parent / "schemas" / "program.fbs"


@dataclass
class PTEFile:
    """A program with its constants and delegate blobs in it, the initial contents of buffers, and named
    data.
    """

    program: Program
    mutable_data: list[Buffer] | None = None
    named_data: NamedDataStoreOutput | None = None


@dataclass
class _ExtendedHeader:
    """The header behind the first 8 bytes of a file: sizes and the place of the segments, in bytes."""

    program_size: int
    segment_base_offset: int
    segment_data_size: int
    magic: bytes = b"eh00"
    length: int = 32

    EXPECTED_MAGIC: ClassVar[bytes] = b"eh00"
    EXPECTED_LENGTH: ClassVar[int] = 32
    MINIMUM_LENGTH: ClassVar[int] = 24
    NUM_HEAD_BYTES: ClassVar[int] = 64

    @staticmethod
    def from_bytes(data: bytes) -> _ExtendedHeader:
        """The header at the start of `data`; ValueError where it is too short."""
        if len(data) < _ExtendedHeader.MINIMUM_LENGTH:
            raise ValueError(
                f"Not enough data for extended header: {len(data)} < {_ExtendedHeader.MINIMUM_LENGTH}"
            )
        magic, length, size, base = struct.unpack_from("<4sIQQ", data)
        has_data_size = length > _ExtendedHeader.MINIMUM_LENGTH and len(data) >= length
        segments = struct.unpack_from("<Q", data, 24)[0] if has_data_size else 0
        return _ExtendedHeader(size, base, segments, magic, length)

    def to_bytes(self) -> bytes:
        """The bytes of a header with these sizes, whatever `magic` and `length` say."""
        return struct.pack(
            "<4sIQQQ",
            self.EXPECTED_MAGIC,
            self.EXPECTED_LENGTH,
            self.program_size,
            self.segment_base_offset,
            self.segment_data_size,
        )

    def is_valid(self) -> bool:
        """Whether the magic bytes and the length are those of a header."""
        return self.magic == self.EXPECTED_MAGIC and self.length >= self.MINIMUM_LENGTH


def _get_extended_header(program_data: bytes) -> _ExtendedHeader | None:
    """The header of a file; None where it has none."""
    try:
        header = _ExtendedHeader.from_bytes(program_data[8:])
    except ValueError:
        return None
    return header if header.is_valid() else None


def serialize_pte_binary(
    pte_file: PTEFile,
    *,
    extract_delegate_segments: bool = False,
    segment_alignment: int = 128,
    constant_tensor_alignment: int | None = None,
    delegate_alignment: int | None = None,
) -> Cord:
    """The bytes of a program file, as this package lays it out; alignments in bytes. Constants are always
    in a segment, whatever `extract_delegate_segments` says of blobs.
    """
    named = pte_file.named_data or NamedDataStoreOutput()
    program = replace(
        pte_file.program,
        constant_buffer=pte_file.program.constant_buffer or [Buffer(b"")],
        mutable_data=pte_file.mutable_data or [Buffer(b"")],
        named_data=[
            NamedData(key, named.content(entry), entry.alignment) for key, entry in named.pte_data.items()
        ],
    )
    return Cord(
        serialize_program(
            program,
            extract_delegate_segments=extract_delegate_segments,
            segment_alignment=segment_alignment,
            constant_tensor_alignment=constant_tensor_alignment or MINIMUM_ALIGNMENT,
            delegate_alignment=delegate_alignment or MINIMUM_ALIGNMENT,
        )
    )


def deserialize_pte_binary(program_data: bytes) -> PTEFile:
    """The objects of a program file, segments put back into the program.

    Raises:
        ValueError: the file is damaged.
    """
    data = bytes(program_data)
    header = _get_extended_header(data)
    if header is None:
        return PTEFile(_flatbuffer_to_program(data))
    if header.segment_base_offset == 0:
        return PTEFile(_flatbuffer_to_program(data[: header.program_size]))
    program, named = _read_table(data[: header.program_size])
    return _restore_segments(program, named, data[header.segment_base_offset :])


def _flatbuffer_to_program(program_data: bytes) -> Program:
    """The program table alone, without what lies in segments."""
    return _read_table(bytes(program_data))[0]


@dataclass
class _FlatbufferResult:
    """A program table, and the largest alignment in it in bytes."""

    data: bytes
    max_alignment: int


def _program_to_flatbuffer(
    program: Program, *, constant_tensor_alignment: int | None = None, delegate_alignment: int | None = None
) -> _FlatbufferResult:
    """The program table with everything in line, without segments; alignments in bytes of constants and
    blobs, those of the schema without.

    Raises:
        ValueError: an alignment is no power of two, or a field does not fit the schema.
    """
    # Not the cached schema: its alignments change.
    schema = read_schema(_SCHEMA_FILE)
    asked = {
        "Buffer": ("storage", constant_tensor_alignment),
        "BackendDelegateInlineData": ("data", delegate_alignment),
    }
    for table, (name, alignment) in asked.items():
        if alignment is None:
            continue
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"Bad alignment {alignment}: expected a power of two, in bytes")
        found = next(each for key, each in schema.structs.items() if key.split(".")[-1] == table).named(name)
        assert found is not None
        found.force_align = alignment
    aligned = [
        each.force_align for table in schema.structs.values() for each in table.fields if each.force_align
    ]
    members = json.loads(_program_to_json(program))
    # Our objects have beside the table what a file has in segments.
    if len(members.pop("mutable_data")) > 1 or members.pop("named_data"):
        raise ValueError("initial contents of buffers and named data lie in segments: serialize_pte_binary")
    data = compile_json(schema, members)
    return _FlatbufferResult(data, max(aligned))


def _program_to_json(program: Program) -> str:
    """The objects as JSON."""
    return json.dumps(program, cls=_DataclassEncoder)


@cache
def _schema() -> Schema:
    return read_schema(_SCHEMA_FILE)


def _read_table(data: bytes) -> tuple[Program, list[dict[str, Any]]]:
    """(the program, its named data as it stands in the table)."""
    members = read_binary(_schema(), data, as_objects=True)
    named = members.pop("named_data", [])
    members["named_data"] = []
    members["mutable_data"] = [{"storage": b""}]
    program: Program = _json_to_dataclass(members, Program)
    for plan in program.execution_plan:
        # An empty list is how a file says that there is none.
        plan.non_const_buffer_device = plan.non_const_buffer_device or None
        for value in plan.values:
            # So is an empty text; a tensor with a name in planned memory would be state.
            extra = value.val.extra_tensor_info if isinstance(value.val, Tensor) else None
            if extra is not None:
                extra.fully_qualified_name = extra.fully_qualified_name or None
        for chain in plan.chains:
            chain.stacktrace = chain.stacktrace or None
    return program, named


def _restore_segments(program: Program, named: list[dict[str, Any]], data: bytes) -> PTEFile:
    segments = []
    for position, segment in enumerate(program.segments):
        if segment.offset + segment.size > len(data):
            raise ValueError(f"Segment {position} {segment} overflows data length {len(data)}")
        segments.append(data[segment.offset : segment.offset + segment.size])
    _restore_delegates(program, segments)
    if program.constant_segment is not None and program.constant_segment.offsets:
        program.constant_buffer = _pieces(program.constant_segment, segments)
    program.constant_segment = SubsegmentOffsets(0, [])
    mutable = None
    if program.mutable_data_segments:
        (part,) = program.mutable_data_segments
        mutable = _pieces(part, segments)
    program.mutable_data_segments, program.segments = None, []
    return PTEFile(program, mutable, _named_data(named, segments) if named else None)


def _restore_delegates(program: Program, segments: Sequence[bytes]) -> None:
    inline: list[BackendDelegateInlineData] = []
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            reference = delegate.processed
            blob = (
                segments[_checked(reference.index, segments, "Delegate")]
                if reference.location == DataLocation.SEGMENT
                else program.backend_delegate_data[reference.index].data
            )
            delegate.processed = BackendDelegateDataReference(DataLocation.INLINE, len(inline))
            inline.append(BackendDelegateInlineData(blob))
    program.backend_delegate_data = inline


def _pieces(part: SubsegmentOffsets, segments: Sequence[bytes]) -> list[Buffer]:
    data = segments[_checked(part.segment_index, segments, "Constant")]
    ends = [*part.offsets[1:], len(data)]
    if any(start > end for start, end in zip(part.offsets, ends, strict=True)):
        raise ValueError(f"the offsets {part.offsets} of a segment of {len(data)} bytes do not grow")
    return [Buffer(data[start:end]) for start, end in zip(part.offsets, ends, strict=True)]


def _named_data(named: list[dict[str, Any]], segments: Sequence[bytes]) -> NamedDataStoreOutput:
    found = NamedDataStoreOutput()
    index: dict[int, int] = {}
    for entry in named:
        segment = _checked(entry["segment_index"], segments, "Named data")
        if segment not in index:
            index[segment] = len(found.buffers)
            found.buffers.append(segments[segment])
        found.pte_data[entry["key"]] = DataEntry(index[segment], 1)
    return found


def _checked(index: int, segments: Sequence[bytes], what: str) -> int:
    if index >= len(segments):
        raise ValueError(f"{what} segment index {index} >= num segments {len(segments)}")
    return index

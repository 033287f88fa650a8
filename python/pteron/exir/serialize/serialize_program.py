"""Objects as files: the layout or the bytes of a program, of a data file, and weights stored packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pteron.exir.emit.debug_table import DEBUG_KEY
from pteron.exir.schema import DataFileEntry, NamedData, Program
from pteron.exir.serialize.file_layout import FileLayout


def lay_out_program(
    program: Program,
    *,
    extract_delegate_segments: bool = True,
    segment_alignment: int = 128,
    constant_tensor_alignment: int = 16,
    delegate_alignment: int = 16,
    strip: bool = False,
) -> FileLayout:
    """The layout of a `.pte` file; all alignments in bytes. `strip`: without debug information.

    The native writer decides on header, segments and alignment, checks the result, and stores equal
    constants, blobs and named data once. Nothing large is copied.
    """
    from pteron import _native

    return FileLayout(
        *_native.layout_program(
            program,
            extract_delegate_segments=extract_delegate_segments,
            segment_alignment=segment_alignment,
            constant_tensor_alignment=constant_tensor_alignment,
            delegate_alignment=delegate_alignment,
            strip=strip,
        )
    )


def serialize_program(
    program: Program,
    *,
    extract_delegate_segments: bool = True,
    segment_alignment: int = 128,
    constant_tensor_alignment: int = 16,
    delegate_alignment: int = 16,
) -> bytes:
    """The bytes of a `.pte` file; arguments as for `lay_out_program`."""
    return lay_out_program(
        program,
        extract_delegate_segments=extract_delegate_segments,
        segment_alignment=segment_alignment,
        constant_tensor_alignment=constant_tensor_alignment,
        delegate_alignment=delegate_alignment,
    ).to_bytes()


def lay_out_data_file(entries: Sequence[DataFileEntry], *, segment_alignment: int = 128) -> FileLayout:
    """The layout of a `.ptd` file, sorted by key; each distinct content is stored once, at a multiple of
    `segment_alignment` bytes and of the entry's own alignment.
    """
    from pteron import _native

    named = sorted(entries, key=lambda entry: entry.key)
    return FileLayout(*_native.layout_data_file(named, segment_alignment=segment_alignment))


# A cache line, and the widest vector register: kernels read packs in place when they lie like this.
PACK_ALIGNMENT = 64


def add_packed_weights(
    program: Program, options: dict[str, Any], progress: Callable[[int, int], object] | None = None
) -> None:
    """Add to the named data of `program` what load would pack, in place: packs and their index.

    The native loader prepares the program to find out, so a pack is stored exactly where load asks for one.
    `options` are those of `serialize_program`; the program must be written with the same ones. `progress` is
    told the bytes of weights that are done, and those of all. Raises what loading the program raises.
    """
    from pteron import _native

    index, *packs = _native.pack_weights(serialize_program(program, **options), progress)
    if packs:
        program.named_data += [NamedData(key, data, PACK_ALIGNMENT) for key, data in (index, *packs)]
        # Debug information stays last, so that stripping it shortens the file.
        program.named_data.sort(key=lambda named: named.key == DEBUG_KEY)

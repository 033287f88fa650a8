"""A `schema.Program` → the layout or the bytes of a program file."""

from __future__ import annotations

from pteron.exir.schema import Program
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

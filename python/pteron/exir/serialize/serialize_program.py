"""A `schema.Program` → the bytes of a program file."""

from __future__ import annotations

from pteron.exir.schema import Program


def serialize_program(
    program: Program,
    *,
    extract_delegate_segments: bool = True,
    segment_alignment: int = 128,
    constant_tensor_alignment: int = 16,
    delegate_alignment: int = 16,
) -> bytes:
    """The bytes of a `.pte` file; all alignments in bytes.

    The native writer lays out header, segments and alignment and stores equal constants, blobs and named
    data once.
    """
    from pteron import _native

    return bytes(
        _native.serialize_program(
            program,
            extract_delegate_segments=extract_delegate_segments,
            segment_alignment=segment_alignment,
            constant_tensor_alignment=constant_tensor_alignment,
            delegate_alignment=delegate_alignment,
        )
    )

"""Weights stored the way kernels read them, so that load packs nothing."""

from __future__ import annotations

from typing import Any

from pteron.exir.emit.debug_table import DEBUG_KEY
from pteron.exir.schema import NamedData, Program
from pteron.exir.serialize.serialize_program import serialize_program

# A cache line, and the widest vector register: kernels read packs in place when they lie like this.
PACK_ALIGNMENT = 64


def add_packed_weights(program: Program, options: dict[str, Any]) -> None:
    """Add to the named data of `program` what load would pack, in place: packs and their index.

    The native loader prepares the program to find out, so a pack is stored exactly where load asks for one.
    `options` are those of `serialize_program`; the program must be written with the same ones. Raises what
    loading the program raises.
    """
    from pteron import _native

    index, *packs = _native.pack_weights(serialize_program(program, **options))
    if packs:
        program.named_data += [NamedData(key, data, PACK_ALIGNMENT) for key, data in (index, *packs)]
        # Debug information stays last, so that stripping it shortens the file.
        program.named_data.sort(key=lambda named: named.key == DEBUG_KEY)

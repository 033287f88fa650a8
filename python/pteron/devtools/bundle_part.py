"""Where the program lies in a file: the whole of a `.pte`, a part of a bundled program."""

from __future__ import annotations

import struct

#: The identifier of bundled programs (`schema/bundled_program.fbs`), at byte 4.
IDENTIFIER = b"BP08"
#: The slot of `program` in the root table's vtable: behind two sizes, the third field.
_SLOT = 4 + 2 * 2


def program_part(content: bytes) -> memoryview:
    """The bytes of the program in a file that `pteron.load` has accepted; a view of `content`.

    Raises:
        ValueError: a bundled program is damaged.
    """
    whole = memoryview(content)
    if content[4:8] != IDENTIFIER:
        return whole
    try:
        (root,) = struct.unpack_from("<I", content)
        vtable = root - struct.unpack_from("<i", content, root)[0]
        field = root + struct.unpack_from("<H", content, vtable + _SLOT)[0]
        start = field + struct.unpack_from("<I", content, field)[0]
        (length,) = struct.unpack_from("<I", content, start)
    except struct.error as e:
        raise ValueError(f"not a bundled program: {e}") from None
    part = whole[start + 4 : start + 4 + length]
    if len(part) != length:
        raise ValueError("not a bundled program: it ends before its program does")
    return part

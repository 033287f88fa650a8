"""Element types as the program file numbers them."""

from __future__ import annotations

import torch

from pteron.errors import ExportError

# Source: the ScalarType enumeration of the file format; complex numbers are stored and executed though its
# schema does not list them.
_NUMBER_OF_DTYPE: dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
}


def is_storable(dtype: torch.dtype) -> bool:
    """Whether the file format has a number for `dtype`."""
    return dtype in _NUMBER_OF_DTYPE


def scalar_type_of(dtype: torch.dtype) -> int:
    """The file format's number for `dtype`; ExportError where it has none."""
    try:
        return _NUMBER_OF_DTYPE[dtype]
    except KeyError:
        raise ExportError(
            f"{dtype} has no number in the program format; storable: "
            f"{', '.join(sorted(str(known) for known in _NUMBER_OF_DTYPE))}",
            got=str(dtype),
            hint="cast to a storable dtype in the model",
        ) from None

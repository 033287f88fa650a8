"""Element types as the program file numbers them."""

from __future__ import annotations

import torch

from pteron.errors import ExportError
from pteron.scalar_types import SCALAR_TYPES

# Programs read `bits16` from files of others; nothing here computes or stores it.
_NUMBER_OF_DTYPE: dict[torch.dtype, int] = {
    getattr(torch, name): number for name, number in SCALAR_TYPES.items() if name != "bits16"
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

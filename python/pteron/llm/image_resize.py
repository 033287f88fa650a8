"""Images of other sizes, as Pillow resizes them: in integers, columns in a first pass, rows in a second one.

A value of the result is a weighted sum of the values under a filter, which is as wide as the image shrinks.
Weights are whole multiples of 2**-22, and every pass ends in 8 bits. Pillow 13 begins with the rows at some
sizes, which rounds otherwise: up to two steps of 255 in a smooth image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

#: Images: uint8 [height, width, 3].
Image = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float64]

_BITS = 22


def _linear(x: _Floats) -> _Floats:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: _Floats) -> _Floats:
    # Keys' cubic with a slope of -1/2 at 1.
    slope, far = -0.5, np.abs(x)
    near = ((slope + 2.0) * far - (slope + 3.0)) * far * far + 1.0
    beyond = (((far - 5.0) * far + 8.0) * far - 4.0) * slope
    found: _Floats = np.where(far < 1.0, near, np.where(far < 2.0, beyond, 0.0))
    return found


def _lanczos(x: _Floats) -> _Floats:
    found: _Floats = np.where((x >= -3.0) & (x < 3.0), np.sinc(x) * np.sinc(x / 3.0), 0.0)
    return found


#: Number of a filter in files and in Pillow → the filter, and how far it reaches.
FILTERS: dict[int, tuple[Callable[[_Floats], _Floats], float]] = {
    1: (_lanczos, 3.0),
    2: (_linear, 1.0),
    3: (_cubic, 2.0),
}


def resize(image: Image, height: int, width: int, filter_number: int) -> Image:
    """The image in this size; `filter_number`: one of `FILTERS`."""
    if image.shape[1] != width:
        image = _resized(image.transpose(1, 0, 2), width, filter_number).transpose(1, 0, 2)
    if image.shape[0] != height:
        image = _resized(image, height, filter_number)
    return np.ascontiguousarray(image)


def _resized(image: npt.NDArray[Any], length: int, filter_number: int) -> npt.NDArray[np.uint8]:
    """The image with `length` rows."""
    first, weights = _weights(image.shape[0], length, filter_number)
    wide = image.astype(np.int32)
    total = np.full((length, *image.shape[1:]), 1 << (_BITS - 1), np.int32)
    for tap in range(weights.shape[1]):
        # Behind the last row the weights are 0.
        rows = np.minimum(first + tap, image.shape[0] - 1)
        total += wide[rows] * weights[:, tap, None, None]
    found: npt.NDArray[np.uint8] = np.clip(total >> _BITS, 0, 255).astype(np.uint8)
    return found


def _weights(given: int, wanted: int, filter_number: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """For each of the wanted places the first one that counts, and weights from there on, [wanted, taps]."""
    function, reach = FILTERS[filter_number]
    step = given / wanted
    stretch = max(step, 1.0)
    centre = (np.arange(wanted) + 0.5) * step
    # Half of the values are cut off towards 0, as an integer is made of a float there.
    first = np.maximum(0, np.trunc(centre - reach * stretch + 0.5)).astype(np.int64)
    behind = np.minimum(given, np.trunc(centre + reach * stretch + 0.5)).astype(np.int64)
    place = first[:, None] + np.arange(int((behind - first).max()))
    found = function((place - centre[:, None] + 0.5) / stretch)
    found = np.where(place < behind[:, None], found, 0.0)
    found /= found.sum(axis=1, keepdims=True)
    scaled = found * (1 << _BITS)
    return first, np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int32)

"""Images as Idefics 3 and SmolVLM take them: tiles of one size behind each other, then the whole image small.

What the processor's configuration states, in NumPy: sizes, the filter, scale, mean and deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.llm.image_resize import FILTERS, Image, resize
from pteron.llm.model_folder import damaged

FILE = "preprocessor_config.json"
#: Pixels along an edge at most, before an image is cut.
_LONGEST = 4096


@dataclass(frozen=True, eq=False)
class TileSettings:
    """How images become tiles.

    Attributes:
        tile: pixels along the edge of a tile. `longest`: pixels along the longer edge of an image before it
            is cut; None: as it comes. `is_cut`: tiles, or one small image alone.
        filter: number of the filter of `pteron.llm.image_resize`.
        table: what each of the 256 values of a channel becomes, float32 [3, 256].
    """

    tile: int
    longest: int | None
    is_cut: bool
    filter: int
    table: npt.NDArray[np.float32]

    @classmethod
    def stated(cls, config: Mapping[str, Any], tile: int) -> TileSettings:
        """As a processor's configuration states. `tile`: the edge that the program takes.

        ProgramError for a number that is none, tiles of another edge, or a kind of processor that is not
        known.
        """
        kind = str(config.get("image_processor_type", "Idefics3"))
        if not kind.startswith(("Idefics3", "SmolVLM")):
            raise damaged(FILE, f"its images are prepared by {kind[:60]!r}, not as Idefics 3 or SmolVLM do")
        edge = _edge(config, "max_image_size", tile)
        if edge != tile:
            raise damaged(FILE, f"its tiles have {edge} pixels along an edge, those of the program {tile}")
        is_resized, is_cut, scales, normalises = (
            _flag(config, name) for name in ("do_resize", "do_image_splitting", "do_rescale", "do_normalize")
        )
        number = config.get("resample", 1)
        if number not in FILTERS or isinstance(number, bool):
            raise damaged(FILE, f"resample is {number!r}; known are {sorted(FILTERS)}")
        scale = _number(config, "rescale_factor", 1 / 255) if scales else 1.0
        means, deviations = (_channels(config, name) for name in ("image_mean", "image_std"))
        values = (np.arange(256, dtype=np.float64) * scale).astype(np.float32)
        table = np.repeat(values[None], 3, axis=0)
        if normalises:
            table = (table - means[:, None]) / deviations[:, None]
        longest = _edge(config, "size", 4 * tile) if is_resized else None
        return cls(tile, longest, is_cut, number, table)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tiles of an image, (0, 0) where there is none but the whole image."""
        if not self.is_cut:
            return 0, 0
        height, width = self._cut_size(*self._first_size(height, width))
        rows, columns = height // self.tile, width // self.tile
        return (rows, columns) if rows * columns > 1 else (0, 0)

    def tiles(self, image: Image) -> npt.NDArray[np.float32]:
        """The tiles of an image row by row, the whole image last: float32 [count, 3, tile, tile]."""
        rows, columns = self.grid(*image.shape[:2])
        sizes = [self._first_size(*image.shape[:2])]
        if self.is_cut:
            sizes.append(self._cut_size(*sizes[0]))
        for height, width in sizes:
            image = resize(image, height, width, self.filter)
        edge = self.tile
        found = np.empty((rows * columns + 1, 3, edge, edge), np.float32)
        for number in range(rows * columns):
            top, left = number // columns * edge, number % columns * edge
            found[number] = self._normalised(image[top : top + edge, left : left + edge])
        found[-1] = self._normalised(resize(image, edge, edge, self.filter))
        return found

    def _normalised(self, part: Image) -> npt.NDArray[np.float32]:
        return np.stack([self.table[channel][part[..., channel]] for channel in range(3)])

    def _first_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width with the longer edge as stated, the other one even, both at most `_LONGEST`."""
        if self.longest is None:
            return height, width
        ratio = width / height
        if width >= height:
            width, height = self.longest, _even(int(self.longest / ratio))
        else:
            height, width = self.longest, _even(int(self.longest * ratio))
        ratio = width / max(height, 1)
        if max(height, width) > _LONGEST:
            is_wide = width >= height
            width = _LONGEST if is_wide else int(_LONGEST * ratio)
            height = int(_LONGEST / ratio) if is_wide else _LONGEST
        return max(height, 1), max(width, 1)

    def _cut_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width in whole tiles; the shorter edge follows the longer one before it is rounded."""
        ratio = width / height
        if width >= height:
            width = self._whole(width)
            height = self._whole(int(width / ratio))
        else:
            height = self._whole(height)
            width = self._whole(int(height * ratio))
        return height, width

    def _whole(self, pixels: int) -> int:
        return max(1, math.ceil(pixels / self.tile)) * self.tile


def _even(pixels: int) -> int:
    return max(pixels + pixels % 2, 1)


def _edge(config: Mapping[str, Any], name: str, default: int) -> int:
    stated = config.get(name)
    if stated is None:
        return default
    edge = stated.get("longest_edge") if isinstance(stated, Mapping) else None
    if not isinstance(edge, int) or isinstance(edge, bool) or not 0 < edge <= 1 << 14:
        raise damaged(FILE, f"{name} states no longest_edge from 1 to {1 << 14}")
    return edge


def _flag(config: Mapping[str, Any], name: str) -> bool:
    stated = config.get(name)
    if stated is not None and not isinstance(stated, bool):
        raise damaged(FILE, f"{name} is neither true nor false")
    return stated is not False


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    stated = config.get(name, default)
    if not isinstance(stated, (int, float)) or isinstance(stated, bool) or not math.isfinite(stated):
        raise damaged(FILE, f"{name} is no number")
    return float(stated)


def _channels(config: Mapping[str, Any], name: str) -> npt.NDArray[np.float32]:
    stated = config.get(name)
    values = [0.5] * 3 if stated is None else stated
    is_right = (
        isinstance(values, list) and len(values) == 3 and all(type(one) in (int, float) for one in values)
    )
    found = np.array(values, np.float32) if is_right else np.empty(0, np.float32)
    if not is_right or not np.isfinite(found).all() or (name == "image_std" and not found.all()):
        raise damaged(FILE, f"{name} does not state three numbers")
    return found

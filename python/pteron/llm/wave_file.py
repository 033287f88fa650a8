"""WAV files: PCM and floats in RIFF or RF64, to mono samples at the rate that a model takes."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pteron.errors import InputError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNKNOWN = 0xFFFFFFFF
#: Bits of a sample → type in the file; 24 bits are widened by hand.
_TYPES = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}
_MOST_CHANNELS, _MOST_RATE = 64, 768_000
#: Zero crossings of the low-pass filter on each side, its window (Kaiser), the part of the band that stays.
_CROSSINGS, _BETA, _ROLL_OFF = 32, 10.0, 0.945


@dataclass(frozen=True)
class Wave:
    """A sound.

    Attributes:
        samples: float32 [frames, channels], from -1 up to 1. `rate`: frames in a second.
    """

    samples: npt.NDArray[np.float32]
    rate: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / self.rate


def read_wave(path: str | os.PathLike[str]) -> Wave:
    """The sound in a WAV file: 8, 16, 24 or 32 bits of PCM, 32 or 64 of floats.

    Raises OSError where the file cannot be read, InputError where it is no WAV file, is damaged, is
    compressed or holds no sound.
    """
    content = memoryview(Path(path).read_bytes())
    name = Path(path).name
    if len(content) < 12 or bytes(content[:4]) not in (b"RIFF", b"RF64") or bytes(content[8:12]) != b"WAVE":
        raise InputError(
            f"{name} is no WAV file",
            hint="convert it first, for example: ffmpeg -i FILE -ac 1 -ar 16000 out.wav",
        )
    layout: tuple[int, int, int, int] | None = None
    at = 12
    while at + 8 <= len(content):
        kind, size = bytes(content[at : at + 4]), int.from_bytes(content[at + 4 : at + 8], "little")
        body = content[at + 8 : at + 8 + size]
        if kind == b"fmt ":
            layout = _layout(body, name)
        elif kind == b"data":
            if layout is None:
                raise InputError(f"{name} is damaged: sound comes before its format")
            # Writers of streams, and of files beyond 4 GiB, leave the size open.
            is_open = size in (0, _UNKNOWN)
            if not is_open and len(body) < size:
                raise InputError(f"{name} is damaged: of {size} bytes of sound {len(body)} are there")
            return _decoded(content[at + 8 :] if is_open else body, layout, name)
        at += 8 + size + size % 2
    raise InputError(f"{name} is damaged: it holds no {'sound' if layout else 'format'}")


def _layout(body: memoryview, name: str) -> tuple[int, int, int, int]:
    """Kind of samples, bits, channels and rate."""
    if len(body) < 16:
        raise InputError(f"{name} is damaged: its format is cut off")
    kind, channels, bits = (int.from_bytes(body[at : at + 2], "little") for at in (0, 2, 14))
    rate = int.from_bytes(body[4:8], "little")
    if kind == _EXTENSIBLE and len(body) >= 26:
        kind = int.from_bytes(body[24:26], "little")
    if (kind, bits) not in _TYPES:
        raise InputError(
            f"{name} holds samples of another kind",
            expected="PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64",
            got=f"{bits} bits, format {kind:#06x}",
        )
    if not 0 < channels <= _MOST_CHANNELS or not 0 < rate <= _MOST_RATE:
        raise InputError(f"{name} is damaged: {channels} channels at {rate} Hz")
    return kind, bits, channels, rate


def _decoded(body: memoryview, layout: tuple[int, int, int, int], name: str) -> Wave:
    kind, bits, channels, rate = layout
    frame = bits // 8 * channels
    frames = len(body) // frame
    if frames == 0:
        raise InputError(f"{name} holds no sound")
    body = body[: frames * frame]
    if bits == 24:
        parts = np.frombuffer(body, np.uint8).reshape(-1, 3).astype(np.int32)
        signed = parts[:, 0] | parts[:, 1] << 8 | (parts[:, 2] ^ 0x80) << 16
        values = (signed - (1 << 23)) / np.float32(1 << 23)
    else:
        raw = np.frombuffer(body, _TYPES[kind, bits])
        if kind == _FLOAT:
            values = raw.astype(np.float32)
        elif bits == 8:
            values = (raw.astype(np.float32) - 128) / 128
        else:
            values = (raw / float(1 << (bits - 1))).astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(f"{name} is damaged: samples that are no numbers")
    return Wave(values.astype(np.float32, copy=False).reshape(frames, channels), rate)


def mono(wave: Wave, rate: int) -> npt.NDArray[np.float32]:
    """The mean of the channels at `rate` frames a second, float32 [frames]."""
    samples: npt.NDArray[np.float64] = wave.samples.mean(axis=1, dtype=np.float64)
    if wave.rate != rate:
        samples = resampled(samples, wave.rate, rate)
    found: npt.NDArray[np.float32] = samples.astype(np.float32)
    return found


def resampled(samples: npt.NDArray[np.float64], old: int, new: int) -> npt.NDArray[np.float64]:
    """The same sound at another rate: a windowed sinc, which cuts what the lower rate cannot carry.

    The result has ceil(frames * new / old) frames; the first frames of both are at the same time.
    """
    divisor = math.gcd(old, new)
    up, down = new // divisor, old // divisor
    cutoff = _ROLL_OFF * min(1.0, new / old)
    reach = math.ceil(_CROSSINGS / cutoff)
    count = -(-len(samples) * up // down)
    padded = np.pad(samples, reach + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    result = np.empty(count)
    # Results whose distance to the samples around them is the same have one filter.
    for phase in range(min(up, count)):
        first = phase * down
        fraction = first % up / up
        distances = np.arange(-reach, reach + 1, dtype=np.float64) - fraction
        taps = _filter(distances, cutoff, reach)
        begin = first // up + 1
        total = len(result[phase::up])
        result[phase::up] = windows[begin : begin + (total - 1) * down + 1 : down] @ taps
    return result


def _filter(distances: npt.NDArray[np.float64], cutoff: float, reach: int) -> npt.NDArray[np.float64]:
    inside = np.clip(1 - (distances / (reach + 1)) ** 2, 0, None)
    window = np.i0(_BETA * np.sqrt(inside)) / np.i0(_BETA)
    taps: npt.NDArray[np.float64] = cutoff * np.sinc(cutoff * distances) * window
    # A constant stays what it is.
    taps /= taps.sum()
    return taps

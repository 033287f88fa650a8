"""Log-mel spectrograms as Whisper takes them: what `preprocessor_config.json` states, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pteron.llm.model_folder import damaged

_FILE = "preprocessor_config.json"
#: Below this many hertz the mel scale is linear, above it logarithmic (Slaney's Auditory Toolbox).
_BREAK, _HERTZ_A_MEL = 1000.0, 200.0 / 3
_LOG_STEP = np.log(6.4) / 27
_HIGHEST, _FLOOR, _RANGE = 8000.0, 1e-10, 8.0
#: Columns that are computed at a time.
_PART = 3000


@dataclass(frozen=True)
class LogMel:
    """How spectrograms are made.

    Attributes:
        bands: rows. `rate`: samples in a second. `fft`: samples of a window. `hop`: samples from one column
            to the next. `seconds`: of a window of the model.
    """

    bands: int = 80
    rate: int = 16_000
    fft: int = 400
    hop: int = 160
    seconds: int = 30

    @classmethod
    def stated(cls, config: Mapping[str, Any]) -> LogMel:
        """As the file states. ProgramError for a number that is none or a setting that is not known."""
        names = {
            "bands": "feature_size",
            "rate": "sampling_rate",
            "fft": "n_fft",
            "hop": "hop_length",
            "seconds": "chunk_length",
        }
        found = {}
        for field, name in names.items():
            value = config.get(name, getattr(cls, field))
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1 << 20:
                raise damaged(_FILE, f"{name} is no number from 1 up")
            found[field] = value
        if config.get("feature_extractor_type", "WhisperFeatureExtractor") != "WhisperFeatureExtractor":
            raise damaged(_FILE, f"its spectrograms are not Whisper's: {config['feature_extractor_type']!r}")
        if config.get("dither") or config.get("do_normalize") or config.get("padding_value"):
            raise damaged(_FILE, "dither, do_normalize and padding_value are not known here")
        return cls(**found)

    def __call__(self, samples: npt.NDArray[np.floating[Any]], frames: int) -> npt.NDArray[np.float32]:
        """The spectrogram float32 [bands, frames] of samples [count], with silence behind them.

        What is louder by 80 dB hides the rest, within these frames.
        """
        signal = np.zeros(max(len(samples), frames * self.hop))
        signal[: len(samples)] = samples
        padded = np.pad(signal, self.fft // 2, mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.fft)[:: self.hop]
        logs = np.empty((frames, self.bands), np.float32)
        # In parts: windows of a long sound take many times its memory.
        for begin in range(0, frames, _PART):
            part = windows[begin : min(frames, begin + _PART)] * self._window
            power = np.abs(np.fft.rfft(part, axis=1)) ** 2
            logs[begin : begin + len(part)] = np.log10(np.maximum(power @ self.filters, _FLOOR))
        logs = np.maximum(logs, logs.max() - np.float32(_RANGE))
        return np.ascontiguousarray(((logs + 4) / 4).T)

    @cached_property
    def _window(self) -> npt.NDArray[np.float64]:
        # Of period `fft`: the value behind the last one would be 0 again.
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.fft) / self.fft)

    @cached_property
    def filters(self) -> npt.NDArray[np.float64]:
        """Triangles of equal area, [frequencies, bands]."""
        edges = _hertz(np.linspace(_mel(0.0), _mel(_HIGHEST), self.bands + 2))
        bins = np.linspace(0, self.rate // 2, 1 + self.fft // 2)
        rising = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
        triangles = np.maximum(0, np.minimum(rising, falling))
        found: npt.NDArray[np.float64] = triangles * (2.0 / (edges[2:] - edges[:-2]))
        return found


def _mel(hertz: float) -> float:
    if hertz < _BREAK:
        return hertz / _HERTZ_A_MEL
    return float(_BREAK / _HERTZ_A_MEL + np.log(hertz / _BREAK) / _LOG_STEP)


def _hertz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    first = _BREAK / _HERTZ_A_MEL
    return np.where(mels < first, mels * _HERTZ_A_MEL, _BREAK * np.exp(_LOG_STEP * (mels - first)))

"""WAV files of every kind, damaged ones, and other rates."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import pteron
from pteron.llm.wave_file import mono, read_wave, resampled
from tests.llm.speech_folder import RATE, sound, write_wave


@pytest.mark.parametrize(("bits", "kind"), [(8, 1), (16, 1), (24, 1), (32, 1), (32, 3), (64, 3)])
@pytest.mark.parametrize("extensible", [False, True])
def test_kinds_of_samples(bits: int, kind: int, extensible: bool, tmp_path: Path) -> None:
    samples = np.stack([sound(0.1), -sound(0.1, seed=1)], axis=1)
    path = write_wave(tmp_path / "a.wav", samples, bits=bits, kind=kind, extensible=extensible)
    wave = read_wave(path)
    assert (wave.rate, wave.samples.shape, wave.samples.dtype) == (RATE, samples.shape, np.float32)
    limit = 1e-7 if kind == 3 or bits > 24 else 2.0 ** (1 - bits)
    np.testing.assert_allclose(wave.samples, samples, rtol=0, atol=limit)
    np.testing.assert_allclose(mono(wave, RATE), wave.samples.mean(axis=1), rtol=0, atol=1e-6)


def test_a_stream_whose_size_is_open(tmp_path: Path) -> None:
    path = write_wave(tmp_path / "a.wav", sound(0.1))
    content = path.read_bytes()
    at = content.index(b"data") + 4
    for size in (b"\0\0\0\0", b"\xff\xff\xff\xff"):
        path.write_bytes(content[:at] + size + content[at + 4 :])
        assert len(read_wave(path).samples) == RATE // 10


def test_what_is_refused(tmp_path: Path) -> None:
    whole = write_wave(tmp_path / "a.wav", sound(0.1)).read_bytes()
    layout, data = whole.index(b"fmt ") + 8, whole.index(b"data")
    cases = {
        b"": "is no WAV file",
        b"ID3" + bytes(60): "is no WAV file.*ffmpeg",
        whole[:20]: "its format is cut off",
        whole[:data]: "it holds no sound",
        whole[:12] + whole[data:]: "sound comes before its format",
        whole[:-10]: "of 3200 bytes of sound 3190 are there",
        whole[: data + 4] + bytes(4): "holds no sound",
        whole[:layout] + b"\x11\0" + whole[layout + 2 :]: "samples of another kind.*16 bits, format 0x0011",
        whole[: layout + 2] + b"\0\0" + whole[layout + 4 :]: "0 channels at 16000 Hz",
        whole[: layout + 4] + bytes(4) + whole[layout + 8 :]: "1 channels at 0 Hz",
    }
    path = tmp_path / "b.wav"
    for content, text in cases.items():
        path.write_bytes(content)
        with pytest.raises(pteron.InputError, match=rf"b\.wav .*{text}|{text}"):
            read_wave(path)
    with pytest.raises(pteron.InputError, match="samples that are no numbers"):
        read_wave(write_wave(path, np.array([0.0, np.nan]), bits=32, kind=3))
    with pytest.raises(FileNotFoundError):
        read_wave(tmp_path / "none.wav")
    # Cut or changed anywhere: an InputError or a sound, nothing else.
    chance = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(whole[: chance.integers(1, 400)])
        changed[chance.integers(len(changed))] = chance.integers(256)
        path.write_bytes(changed)
        with suppress(pteron.InputError):
            assert len(read_wave(path).samples)


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_001, 22_050, 44_100, 48_000, 96_000])
def test_other_rates(rate: int, tmp_path: Path) -> None:
    wave = read_wave(write_wave(tmp_path / "a.wav", sound(1, rate), rate, bits=32, kind=3))
    got = mono(wave, RATE)
    assert got.shape == (RATE,)
    # Less at the ends, where the filter reaches into silence.
    np.testing.assert_allclose(got[400:-400], sound(1)[400:-400], rtol=0, atol=2e-5)


def test_what_the_lower_rate_cannot_carry_is_cut() -> None:
    at = np.arange(44_100) / 44_100
    high = resampled(np.sin(2 * np.pi * 9_500 * at), 44_100, RATE)
    assert np.abs(high[400:-400]).max() < 1e-4
    constant = resampled(np.ones(44_100), 44_100, RATE)
    np.testing.assert_allclose(constant[400:-400], 1, atol=1e-12)

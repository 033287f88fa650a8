"""Spectrograms against those of transformers' WhisperFeatureExtractor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pteron
from pteron.llm.log_mel import LogMel
from tests.llm.speech_folder import RATE, sound


@pytest.mark.parametrize("bands", [80, 128])
@pytest.mark.parametrize("seconds", [0.01, 3, 30])
def test_the_same_as_transformers(bands: int, seconds: float) -> None:
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(feature_size=bands)
    samples = sound(seconds) + np.random.default_rng(1).normal(0, 0.01, round(seconds * RATE)).astype("f4")
    got = LogMel(bands=bands)(samples, 3000)
    whole = np.zeros(30 * RATE, np.float32)
    whole[: len(samples)] = samples
    expected = extractor._np_extract_fbank_features(whole[None], "cpu")[0]
    assert (got.shape, got.dtype) == ((bands, 3000), np.float32)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
    # With torch it computes in float32, which is farther from the truth.
    found = extractor(samples, sampling_rate=RATE, return_tensors="np").input_features[0]
    np.testing.assert_allclose(got, found, rtol=0, atol=1e-4)


def test_long_sounds_and_silence() -> None:
    from transformers import WhisperFeatureExtractor

    samples = sound(70.123)
    frames = len(samples) // 160
    expected = WhisperFeatureExtractor()._np_extract_fbank_features(samples[None], "cpu")[0]
    np.testing.assert_allclose(LogMel()(samples, frames), expected[:, :frames], rtol=0, atol=1e-5)
    silent = LogMel()(np.zeros(RATE), 3000)
    assert np.unique(silent).tolist() == [-1.5]


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"hop_length": "160"}, "hop_length is no number"),
        ({"feature_size": 0}, "feature_size is no number from 1 up"),
        ({"dither": 0.1}, "dither"),
        ({"feature_extractor_type": "Wav2Vec2FeatureExtractor"}, "are not Whisper's"),
    ],
)
def test_damaged_files(stated: dict[str, Any], text: str) -> None:
    with pytest.raises(pteron.ProgramError, match=rf"preprocessor_config\.json.*{text}"):
        LogMel.stated(stated)

"""`Transcriber`: what transformers' `generate` gives, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.llm import Generator, Text2TextGenerator, Transcriber, transcriber
from tests.llm.recipe_folder import RecipeFolder
from tests.llm.speech_folder import RATE, sound, write_wave
from tests.llm.tiny_encoder_decoders import BANDS

NEW = 40


@pytest.fixture
def hearer(speech: RecipeFolder) -> Transcriber:
    """A transcriber of its own."""
    return Transcriber(speech.folder, threads=1)


@pytest.fixture
def changed(speech: RecipeFolder, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the folder with entries of a JSON file changed."""

    def copy(file: str, **entries: Any) -> Path:
        folder = Path(shutil.copytree(speech.folder, tmp_path / "copy"))
        path = folder / file
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
        return folder

    return copy


def features(samples: Any, **settings: Any) -> Any:
    """What transformers' extractor makes of samples."""
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(feature_size=BANDS, chunk_length=1)
    return extractor(samples, sampling_rate=RATE, return_tensors="pt", **settings).input_features


def heard(speech: RecipeFolder, given: Any, **settings: Any) -> list[tuple[float, float, list[int]]]:
    """Start, end and tokens of transformers' segments, without the time that begins the next one."""
    asked = {"language": "en", "task": "transcribe", "max_new_tokens": NEW, "do_sample": False, **settings}
    found = speech.model.generate(given, return_timestamps=True, return_segments=True, **asked)
    first = speech.model.generation_config.no_timestamps_token_id + 1
    segments = []
    for each in found["segments"][0]:
        tokens = each["tokens"].tolist()
        is_doubled = len(tokens) > 2 and min(tokens[-2:]) >= first
        segments.append((float(each["start"]), float(each["end"]), tokens[:-1] if is_doubled else tokens))
    return segments


@pytest.mark.parametrize("seconds", [1.0, 3.37, 5.0])
@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_the_same_segments_as_transformers(
    speech: RecipeFolder, hearer: Transcriber, seconds: float, task: str
) -> None:
    samples = sound(seconds, seed=int(seconds))
    longer = {} if seconds <= 1 else {"truncation": False, "padding": "longest"}
    expected = heard(speech, features(samples, **longer), task=task)
    result = hearer.transcribe(samples, rate=RATE, language="en", task=task, max_new_tokens=NEW)
    assert [list(each.tokens) for each in result.segments] == [tokens for _, _, tokens in expected]
    times = [(start, end) for start, end, _ in expected]
    np.testing.assert_allclose([(each.start, each.end) for each in result.segments], times, atol=1e-9)
    assert len(expected) > (0 if seconds <= 1 else 2)
    assert result.text
    assert "<|" not in result.text
    assert "".join("".join(each.text for each in result.segments).split()) == "".join(result.text.split())
    assert (result.language, result.duration) == ("en", pytest.approx(len(samples) / RATE))


def test_without_times_and_languages_that_are_found(speech: RecipeFolder, hearer: Transcriber) -> None:
    stated, found = speech.model.generation_config, set()
    # A trained model writes no times where it is asked for none.
    times = range(stated.no_timestamps_token_id + 1, speech.model.config.vocab_size)
    never = [*stated.suppress_tokens, *times]
    for seed in range(4):
        samples = sound(1, seed=seed)
        given = features(samples)
        token = int(speech.model.detect_language(given)[0])
        language = {token: code for code, token in hearer.prompt.languages.items()}[token]
        settings = {"language": language, "task": "transcribe", "max_new_tokens": NEW}
        asked = {"return_timestamps": False, "do_sample": False, "suppress_tokens": never, **settings}
        tokens = speech.model.generate(given, **asked)[0].tolist()
        result = hearer.transcribe(samples, rate=RATE, timestamps=False, max_new_tokens=NEW)
        (segment,) = result.segments
        begin = hearer.prompt.tokens(language, "transcribe", timestamps=False)
        said = tokens[len(begin) :] if tokens[: len(begin)] == begin else tokens
        assert list(segment.tokens) == [each for each in said if each != stated.eos_token_id]
        assert result.language == language
        assert (segment.start, segment.end) == (0.0, 1.0)
        found.add(result.text)
    assert len(found) == 4
    assert hearer.languages == ("de", "en", "fr")


def test_files_segments_and_threads(hearer: Transcriber, tmp_path: Path) -> None:
    samples = sound(2.5)
    path = write_wave(tmp_path / "a.wav", samples, bits=32, kind=3)
    whole = hearer.transcribe(path, max_new_tokens=NEW)
    assert whole == hearer.transcribe(samples, rate=RATE, max_new_tokens=NEW)
    hearing = hearer.segments(path, max_new_tokens=NEW)
    assert hearing.language is None
    assert next(hearing) == whole.segments[0]
    assert hearing.language == whole.language
    both = np.stack([samples, samples], axis=1)
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda _: hearer.transcribe(both, rate=RATE, max_new_tokens=NEW), range(2))
        assert list(found) == [whole, whole]
    # A sound shorter than a window has silence behind it.
    short = hearer.transcribe(samples[:4000], rate=RATE, max_new_tokens=NEW)
    assert short.segments
    assert short.duration == 0.25


def test_what_is_refused(hearer: Transcriber, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = sound(0.5)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"language": "xx"}, "does not know the language 'xx'.*de, en, fr"),
        ({"language": "en", "task": "sing"}, "no task 'sing'"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": 1000}, "does not fit into the cache"),
        ({"rate": None}, "samples need their rate"),
        ({"deadline": 0.0}, "the time for the transcript is over"),
    ]
    for settings, text in cases:
        with pytest.raises((pteron.InputError, pteron.DeadlineExceeded), match=text):
            hearer.transcribe(samples, **{"rate": RATE, **settings})
    for wrong in (np.zeros(0, np.float32), np.zeros(9, np.int16), np.full(9, np.inf), np.zeros((2, 2, 2))):
        with pytest.raises(pteron.InputError, match="samples are no sound"):
            hearer.transcribe(wrong, rate=RATE)
    path = tmp_path / "a.mp3"
    path.write_bytes(b"ID3" + bytes(100))
    with pytest.raises(pteron.InputError, match=r"a\.mp3 is no WAV file"):
        hearer.transcribe(path)
    with pytest.raises(pteron.InputError, match="states its rate"):
        hearer.transcribe(path, rate=RATE)
    monkeypatch.setattr(transcriber, "MOST_SECONDS", 0.4)
    with pytest.raises(pteron.InputError, match=r"the sound is too long.*cut it into parts"):
        hearer.transcribe(samples, rate=RATE)


def test_other_folders(speech: RecipeFolder, recipe: RecipeFolder) -> None:
    with pytest.raises(pteron.InputError, match="holds no encoder-decoder"):
        Transcriber(recipe.folder)
    with pytest.raises(pteron.InputError, match=r"holds an encoder-decoder.*pteron\.llm\.Transcriber"):
        Generator(speech.folder)
    with pytest.raises(pteron.InputError, match=r"source is audio.*pteron\.llm\.Transcriber"):
        Text2TextGenerator(speech.folder)


@pytest.mark.parametrize(
    ("file", "entries", "text"),
    [
        ("generation_config.json", {"lang_to_id": [1]}, "lang_to_id is no object"),
        ("generation_config.json", {"lang_to_id": {"<|en|>": 10**6}}, "lang_to_id holds 1000000"),
        ("generation_config.json", {"no_timestamps_token_id": "a"}, "no_timestamps_token_id holds 'a'"),
        (
            "generation_config.json",
            {"suppress_tokens": "a"},
            "suppress_tokens has entries that are no tokens",
        ),
        ("preprocessor_config.json", {"feature_size": 80}, "80 bands in 1 s, the program's 8 in 100 columns"),
        ("preprocessor_config.json", {"chunk_length": 30}, "8 bands in 30 s, the program's 8 in 100 columns"),
        ("tokenizer.json", {"model": None}, "tokenizer"),
    ],
)
def test_damaged_folders(changed: Callable[..., Path], file: str, entries: dict[str, Any], text: str) -> None:
    with pytest.raises(pteron.ProgramError, match=text):
        Transcriber(changed(file, **entries))


def test_a_tokenizer_of_another_model(changed: Callable[..., Path]) -> None:
    folder = changed("preprocessor_config.json")
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    extra = {
        **tokenizer["added_tokens"][-1],
        "id": tokenizer["added_tokens"][-1]["id"] + 1,
        "content": "<|x|>",
    }
    tokenizer["added_tokens"].append(extra)
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(pteron.InputError, match="the tokenizer is another model's"):
        Transcriber(folder)


def test_a_model_of_one_language_without_times(changed: Callable[..., Path]) -> None:
    none = {"lang_to_id": None, "task_to_id": None, "no_timestamps_token_id": None}
    hearer = Transcriber(changed("generation_config.json", **none), threads=1)
    assert hearer.languages == ()
    result = hearer.transcribe(sound(1.5), rate=RATE, max_new_tokens=5)
    assert (len(result.segments), result.language) == (2, None)
    for settings, text in (
        ({"language": "en"}, "has one language"),
        ({"task": "translate"}, "no task 'translate'"),
        ({"timestamps": True}, "knows no timestamps"),
    ):
        with pytest.raises(pteron.InputError, match=text):
            hearer.transcribe(sound(1), rate=RATE, **settings)

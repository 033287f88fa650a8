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
from pteron.llm.sampling import SamplingParameters
from pteron.llm.speech_quality import compression_ratio, mean
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


@pytest.mark.parametrize("limit", [-9.0, 0.0])
def test_windows_without_speech_are_those_of_transformers(
    speech: RecipeFolder, hearer: Transcriber, limit: float
) -> None:
    import torch

    samples, start = sound(3.0, seed=3), torch.tensor([[hearer.prompt.start]])
    given = features(samples, truncation=False, padding="longest")
    # As silent as the first window is.
    with torch.no_grad():
        logits = speech.model(input_features=given[..., :100], decoder_input_ids=start).logits[0, -1]
    silence = float(logits.softmax(-1)[speech.model.generation_config.no_timestamps_token_id - 1]) * 0.999
    asked = {"logprob_threshold": limit, "no_speech_threshold": silence}
    expected = heard(speech, given, temperature=(0.0,), **asked)
    result = hearer.transcribe(samples, rate=RATE, language="en", max_new_tokens=NEW, **asked)
    assert [list(each.tokens) for each in result.segments] == [tokens for _, _, tokens in expected]
    assert [round(each.start, 9) for each in result.segments] == [round(begin, 9) for begin, _, _ in expected]
    everything = hearer.transcribe(samples, rate=RATE, language="en", max_new_tokens=NEW)
    assert (result.segments == everything.segments) == (limit < 0)
    assert all(each.start >= 1 for each in result.segments) == (limit == 0)


def test_an_answer_that_fails_is_written_again(speech: RecipeFolder, hearer: Transcriber) -> None:
    samples = sound(1.0, seed=1)
    settings: dict[str, Any] = {"rate": RATE, "language": "en", "max_new_tokens": NEW}
    first = hearer.transcribe(samples, **settings)
    drawn = hearer.transcribe(samples, temperature=1.0, seed=5, **settings)
    assert drawn.segments != first.segments
    assert drawn == hearer.transcribe(samples, temperature=1.0, seed=5, **settings)
    assert drawn != hearer.transcribe(samples, temperature=1.0, seed=6, **settings)
    # The first answer is never good enough here, and the last one counts.
    for threshold in ({"logprob_threshold": 0.0}, {"compression_ratio_threshold": 0.1}):
        again = hearer.transcribe(samples, temperature=(0.0, 1.0), seed=5, **threshold, **settings)
        assert again == drawn
    kept = {"logprob_threshold": -50.0, "compression_ratio_threshold": 50.0}
    assert hearer.transcribe(samples, temperature=(0.0, 1.0), seed=5, **kept, **settings) == first


def test_quality_is_measured_as_transformers_does(speech: RecipeFolder, hearer: Transcriber) -> None:
    import torch

    tokens = [5, 5, 5, 5, 9, 300, 5, 5]
    vocabulary = speech.model.config.vocab_size
    theirs = speech.model._retrieve_compression_ratio(torch.tensor(tokens), vocabulary)
    assert compression_ratio(tokens, vocabulary) == theirs
    chooser = hearer.prompt.chooser(True, SamplingParameters(temperature=0.0), is_weighed=True)
    logits = np.random.default_rng(0).standard_normal((8, vocabulary)).astype(np.float32) * 3
    scores = []
    for row in logits:
        # The scores behind the rules, as transformers' processors give them.
        scores.append(torch.from_numpy(chooser.scores(row)))
        chooser.choose(row)
    expected = speech.model._retrieve_avg_logprobs(scores, torch.tensor(chooser.found), 0.0)
    assert mean(chooser.logprobs) == pytest.approx(float(expected), abs=1e-5)


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
        ({"temperature": -1.0}, "a setting of a transcript is out of range"),
        ({"temperature": (0.0, "hot")}, "a setting of a transcript is out of range"),
        ({"temperature": ()}, "at least one temperature"),
        ({"logprob_threshold": float("nan")}, "a setting of a transcript is out of range"),
        ({"no_speech_threshold": 0.5}, "a threshold of silence needs one of probability"),
        ({"seed": 2**70}, "a setting of sampling is out of range"),
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

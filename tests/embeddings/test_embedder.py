"""`Embedder`: the vectors of sentence-transformers over lengths, batches and prompts, and what it refuses."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.embeddings import Embedder
from pteron.embeddings import embedder as embedder_module
from tests.embeddings.conftest import PROMPTS, Exported
from tests.embeddings.tiny_encoders import POSITIONS, TEXTS
from tests.support.programs import add_method, build

BOUND = 1e-5
WITHOUT_TORCH = """
import sys
for name in ("torch", "transformers", "sentence_transformers"):
    sys.modules[name] = None
import numpy as np
from pteron.embeddings import Embedder
np.save(sys.argv[2], Embedder(sys.argv[1], threads=1).encode(sys.argv[3:]))
"""


@pytest.mark.parametrize("batch_size", [1, 3, 32, 1000])
def test_batches(embedder: Embedder, exported: Exported, batch_size: int) -> None:
    got = embedder.encode(TEXTS, batch_size=batch_size)
    assert got.dtype == np.float32
    assert np.abs(got - exported.model.encode(list(TEXTS))).max() <= BOUND


@pytest.mark.parametrize("words", range(0, 60, 3))
def test_lengths(embedder: Embedder, exported: Exported, words: int) -> None:
    text = " ".join(["a step of the files"] * words)[: 4 * words]
    got = embedder.encode(text)
    assert got.shape == (embedder.dimension,)
    assert np.abs(got - exported.model.encode(text)).max() <= BOUND


def test_some_texts_are_longer_than_a_batch_takes(embedder: Embedder) -> None:
    lengths = [len(row) for row in embedder.tokens(TEXTS)]
    assert min(lengths) < embedder.folder.forward.tokens == 16 < max(lengths) == POSITIONS


@pytest.mark.parametrize(
    ("lengths", "batch_size", "calls"),
    [
        ([9, 9, 9, 9, 9], 2, [2, 2, 1]),
        ([16, 1, 16, 2, 15], 32, [3, 2]),
        ([16, 12, 12, 12, 11, 11], 32, [4, 2]),
        ([17, 20, 16], 32, [1, 1, 1]),
    ],
)
def test_calls_have_little_padding(
    embedder: Embedder, lengths: list[int], batch_size: int, calls: list[int]
) -> None:
    """A row that would be filled up goes into the next call; rows longer than 16 go alone."""
    found = embedder._batches._batches([[1] * length for length in lengths], batch_size)
    places = [each for _method, each in found]
    assert [len(each) for each in places] == calls
    assert sorted(place for each in places for place in each) == list(range(len(lengths)))


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_by_name(embedder: Embedder, exported: Exported, name: str) -> None:
    expected = exported.model.encode(list(TEXTS), prompt_name=name)
    assert np.abs(embedder.encode(TEXTS, prompt_name=name) - expected).max() <= BOUND
    assert np.array_equal(
        embedder.encode(TEXTS, prompt=PROMPTS[name]), embedder.encode(TEXTS, prompt_name=name)
    )


def test_queries_and_passages(embedder: Embedder, exported: Exported) -> None:
    model: Any = exported.model
    query, passage = embedder.encode_query(TEXTS), embedder.encode_passage(TEXTS)
    assert np.abs(query - model.encode_query(list(TEXTS))).max() <= BOUND
    # sentence-transformers has a prompt "document" for every model, without text, before "passage".
    assert np.abs(passage - model.encode_document(list(TEXTS))).max() <= BOUND
    assert np.array_equal(embedder.encode_query(TEXTS, prompt=""), embedder.encode(TEXTS))


def test_passages_of_older_files(copied: Path) -> None:
    path = copied / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": {"passage": "text: "}, "default_prompt_name": None}))
    found = Embedder(copied)
    assert np.array_equal(found.encode_passage(TEXTS), found.encode(TEXTS, prompt="text: "))
    assert np.array_equal(found.encode_query(TEXTS), found.encode(TEXTS))


def test_default_prompt(copied: Path) -> None:
    path = copied / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": PROMPTS, "default_prompt_name": "query"}))
    found = Embedder(copied)
    assert np.array_equal(found.encode(TEXTS), found.encode(TEXTS, prompt_name="query"))


@pytest.mark.parametrize("kept", [1, 7, 32])
def test_truncated_vectors(exported: Exported, kept: int) -> None:
    found = Embedder(exported.folder, truncate_dim=kept, normalize_embeddings=True)
    expected = exported.model.encode(list(TEXTS), truncate_dim=kept, normalize_embeddings=True)
    assert found.dimension == kept
    assert np.abs(found.encode(TEXTS) - expected).max() <= BOUND


@pytest.mark.parametrize("length", [3, 9, POSITIONS])
def test_shorter_texts(exported: Exported, length: int) -> None:
    found, model = Embedder(exported.folder, max_seq_length=length), exported.model
    try:
        model.max_seq_length = length
        expected = model.encode(list(TEXTS))
    finally:
        model.max_seq_length = POSITIONS
    assert max(map(len, found.tokens(TEXTS))) == length
    assert np.abs(found.encode(TEXTS) - expected).max() <= BOUND


def test_similarity(embedder: Embedder, exported: Exported, copied: Path) -> None:
    vectors = exported.model.encode(list(TEXTS))
    for name in ("cosine", "dot", "euclidean", "manhattan"):
        path = copied / "config_sentence_transformers.json"
        path.write_text(json.dumps({"similarity_fn_name": name}))
        exported.model.similarity_fn_name = name
        expected = exported.model.similarity(vectors, vectors[:3]).numpy()
        got = Embedder(copied).similarity(vectors, vectors[:3])
        assert np.abs(got - expected).max() <= 1e-5, name
    exported.model.similarity_fn_name = "cosine"
    assert embedder.similarity(vectors[0], vectors).shape == (1, len(TEXTS))
    with pytest.raises(pteron.InputError, match="the vectors do not fit together"):
        embedder.similarity(vectors, vectors[:, :3])


def test_no_texts(embedder: Embedder) -> None:
    for nothing in ([], (), iter(())):
        got = embedder.encode(nothing)
        assert (got.shape, got.dtype) == ((0, embedder.dimension), np.float32)


def test_windows_change_nothing(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = embedder.encode(TEXTS)
    monkeypatch.setattr(embedder_module, "_WINDOW", 3)
    assert np.abs(embedder.encode(iter(TEXTS)) - whole).max() <= 1e-6


def test_threads_and_pickles(embedder: Embedder, exported: Exported) -> None:
    alone = embedder.encode(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(embedder.encode, [TEXTS] * 12):
            assert np.array_equal(got, alone)
    settings = {"max_seq_length": 9, "truncate_dim": 5, "batch_size": 2, "normalize_embeddings": True}
    first = Embedder(exported.folder, threads=2, **settings)
    again = pickle.loads(pickle.dumps(first))
    assert {name: getattr(again, name) for name in settings} == settings
    assert again.threads == 2
    assert np.array_equal(again.encode(TEXTS), first.encode(TEXTS))


def test_without_torch(exported: Exported, embedder: Embedder, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(exported.folder), str(tmp_path / "v.npy"), *TEXTS]
    subprocess.run(command, check=True)
    assert np.array_equal(np.load(tmp_path / "v.npy"), embedder.encode(TEXTS))


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        (7, "these are no texts"),
        (b"bytes", "these are no texts"),
        ({"a": "b"}, "these are no texts"),
        (["a", None], "text 1 is no str"),
        ([["a", "b"]], "text 0 is no str"),
    ],
)
def test_what_is_no_text(embedder: Embedder, texts: Any, text: str) -> None:
    with pytest.raises(pteron.InputTypeError, match=text):
        embedder.encode(texts)


def test_surrogates(embedder: Embedder) -> None:
    with pytest.raises(pteron.InputError, match="text 1 has surrogates"):
        embedder.encode(["a", "b\ud800"])
    with pytest.raises(pteron.InputError, match="the prompt has surrogates"):
        embedder.encode("a", prompt="\ud800")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"prompt_name": "none"}, "the model has no prompt of this name"),
        ({"prompt_name": "query", "prompt": "x"}, "give prompt or prompt_name, not both"),
        ({"batch_size": 0}, "batch_size is out of range"),
        ({"truncate_dim": 33}, "truncate_dim is out of range"),
        ({"truncate_dim": True}, "truncate_dim is out of range"),
    ],
)
def test_settings_of_calls(embedder: Embedder, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(pteron.InputError, match=text):
        embedder.encode("a", **settings)


@pytest.mark.parametrize(
    "settings",
    [{"max_seq_length": 2}, {"max_seq_length": POSITIONS + 1}, {"batch_size": 0}, {"truncate_dim": 0}],
)
def test_settings_of_embedders(exported: Exported, settings: dict[str, Any]) -> None:
    with pytest.raises(pteron.InputError, match=f"{next(iter(settings))} is out of range"):
        Embedder(exported.folder, **settings)


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        ("config_sentence_transformers.json", "{", "it is no JSON"),
        ("config_sentence_transformers.json", '{"prompts": [1]}', "prompts is no object of texts"),
        ("config_sentence_transformers.json", '{"prompts": {"a": 1}}', "prompts is no object of texts"),
        ("config_sentence_transformers.json", '{"default_prompt_name": "a"}', "the name of no prompt"),
        (
            "config_sentence_transformers.json",
            '{"similarity_fn_name": "maxsim"}',
            "similarity_fn_name is none",
        ),
        ("config_sentence_transformers.json", '{"truncate_dim": 99}', "truncate_dim is no number from 1"),
        ("tokenizer_config.json", '{"truncation_side": "up"}', "neither left nor right"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be used"),
        ("model.pte", build(add_method()), "cannot be used"),
    ],
)
def test_damaged_folders(copied: Path, file: str, content: Any, text: str) -> None:
    (copied / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(pteron.ProgramError, match=text):
        Embedder(copied)


@pytest.mark.parametrize("file", ["model.pte", "tokenizer.json"])
def test_missing_files(copied: Path, file: str) -> None:
    (copied / file).unlink()
    with pytest.raises(FileNotFoundError):
        Embedder(copied)
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        Embedder(copied / "none")


def test_no_tokenizers_package(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pteron\[llm\]"):
        Embedder(exported.folder)

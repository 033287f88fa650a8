"""`PteronModule`: a folder as the module of a `SentenceTransformer`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import pteron
from pteron.embeddings import export
from pteron.integrations.sentence_transformers import PteronModule
from tests.embeddings.conftest import PROMPTS, Exported
from tests.embeddings.tiny_encoders import POSITIONS, TEXTS, written

BOUND = 1e-5


def test_whole_models(exported: Exported) -> None:
    module = PteronModule(exported.folder, threads=1)
    model = SentenceTransformer(modules=[module], prompts=dict(module.embedder.prompts), device="cpu")
    assert (model.get_embedding_dimension(), model.max_seq_length) == (32, POSITIONS)
    for name in PROMPTS:
        got = model.encode(list(TEXTS), prompt_name=name, batch_size=3)
        assert np.abs(got - exported.model.encode(list(TEXTS), prompt_name=name)).max() <= BOUND
    got = model.encode(TEXTS[0], convert_to_tensor=True, normalize_embeddings=True, truncate_dim=5)
    assert got.shape == (5,)
    expected = exported.model.encode_query(list(TEXTS))
    assert np.abs(model.encode_query(list(TEXTS)) - expected).max() <= BOUND
    with pytest.raises(pteron.InputTypeError, match="text 0 is no str"):
        model.encode([("a", "b")])


def test_prompts_that_are_not_pooled(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    whole = written(
        tmp_path / "parts",
        lambda width: [Pooling(width, include_prompt=False)],
        prompts={"query": "what is "},
    )
    export(whole, tmp_path / "out")
    model = SentenceTransformer(modules=[PteronModule(tmp_path / "out")], device="cpu")
    got = model.encode(list(TEXTS), prompt="what is ")
    assert np.abs(got - whole.encode(list(TEXTS), prompt="what is ")).max() <= BOUND


def test_saved_and_loaded(exported: Exported, tmp_path: Path) -> None:
    model = SentenceTransformer(modules=[PteronModule(exported.folder)], device="cpu")
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    assert isinstance(again[0], PteronModule)
    assert np.array_equal(again.encode(list(TEXTS)), model.encode(list(TEXTS)))

"""One folder for all tests of `Embedder`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pteron.embeddings import Embedder
from tests.embeddings.tiny_encoders import written

PROMPTS = {"query": "what is ", "passage": "text: ", "plain": ""}


@dataclass(frozen=True)
class Exported:
    """`folder` with the program; `model` is what it was made of, saved in `source`."""

    folder: Path
    source: Path
    model: Any


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Mean and normalisation, prompts, and calls of 16 tokens at most, so that texts are longer than that."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    from pteron.embeddings import export

    folder = tmp_path_factory.mktemp("embeddings")
    model = written(folder / "parts", lambda width: [Pooling(width), Normalize()], prompts=PROMPTS)
    model.save(str(folder / "source"))
    export(folder / "source", folder / "out", batch_size=256)
    return Exported(folder / "out", folder / "source", model)


@pytest.fixture
def embedder(exported: Exported) -> Embedder:
    """An embedder of its own."""
    return Embedder(exported.folder, threads=1)


@pytest.fixture
def copied(exported: Exported, tmp_path: Path) -> Path:
    """A copy of the folder that a test may damage."""
    return Path(shutil.copytree(exported.folder, tmp_path / "model"))

"""One folder for all tests of generation."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pteron.llm import Generator
from tests.llm.recipe_folder import RecipeFolder, write_folder
from tests.llm.speech_folder import write_speech_folder
from tests.llm.vision_folder import write_vision_folder


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> RecipeFolder:
    """The folder of a small model, with the model."""
    return write_folder(tmp_path_factory.mktemp("llm"))


@pytest.fixture(scope="session")
def speech(tmp_path_factory: pytest.TempPathFactory) -> RecipeFolder:
    """The folder of a small Whisper, with the model."""
    return write_speech_folder(tmp_path_factory.mktemp("speech"))


@pytest.fixture(scope="session")
def vision(tmp_path_factory: pytest.TempPathFactory) -> RecipeFolder:
    """The folder of a small model that takes images, with the model."""
    return write_vision_folder(tmp_path_factory.mktemp("vision"))


@pytest.fixture
def generator(recipe: RecipeFolder) -> Generator:
    """A generator of its own."""
    return Generator(recipe.folder, threads=1)


@pytest.fixture
def copied(recipe: RecipeFolder, tmp_path: Path) -> Path:
    """A copy of the folder that a test may damage."""
    return Path(shutil.copytree(recipe.folder, tmp_path / "model"))

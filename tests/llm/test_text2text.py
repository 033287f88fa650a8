"""`Text2TextGenerator`: the text of transformers' `generate`, and what it refuses."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import pteron
from pteron.llm import Generator, Text2TextGenerator, export
from tests.llm.recipe_folder import RecipeFolder, trained_tokenizer
from tests.llm.tiny_encoder_decoders import t5

TEXTS = ("Every step of the tests", "The files", "A report says which commands were run, and when.")
SOURCE, NEW = 32, 64


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RecipeFolder:
    """A T5 with a tokenizer of its own."""
    folder = tmp_path_factory.mktemp("t5")
    tokenizer = trained_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    model = t5(vocab_size=tokenizer.get_vocab_size(), num_layers=2)
    export(model, folder / "out", max_seq_len=NEW, max_source_len=SOURCE, tokenizer=folder)
    return RecipeFolder(folder / "out", model)


@pytest.fixture
def generator(made: RecipeFolder) -> Text2TextGenerator:
    """A generator of its own."""
    return Text2TextGenerator(made.folder, threads=1)


@pytest.fixture
def stating(made: RecipeFolder, tmp_path: Path) -> Callable[..., Text2TextGenerator]:
    """Opens a copy whose generation_config.json states more."""

    def opened(**entries: Any) -> Text2TextGenerator:
        folder = Path(shutil.copytree(made.folder, tmp_path / "copy"))
        path = folder / "generation_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
        return Text2TextGenerator(folder, threads=1)

    return opened


def expected(made: RecipeFolder, generator: Text2TextGenerator, text: str, **settings: Any) -> list[int]:
    """The new tokens of transformers."""
    ids = torch.tensor([generator.tokenizer.encode(text)])
    settings = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, **settings}
    found: list[int] = made.model.generate(ids, **settings)[0, 1:].tolist()
    return found


def test_the_same_text_as_transformers(made: RecipeFolder, generator: Text2TextGenerator) -> None:
    for text in TEXTS:
        tokens = expected(made, generator, text, eos_token_id=None)
        result = generator.generate(text, max_new_tokens=NEW, ignore_eos=True)
        assert list(result.tokens) == tokens
        assert len(tokens) == NEW
        assert result.text == generator.tokenizer.decode(tokens)
        assert "".join(generator.stream(text, max_new_tokens=NEW, ignore_eos=True)) == result.text
    assert len({tuple(expected(made, generator, text)) for text in TEXTS}) == len(TEXTS)


def test_answers_at_the_same_time(generator: Text2TextGenerator) -> None:
    alone = [generator.generate(text, max_new_tokens=20).tokens for text in TEXTS]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda text: generator.generate(text, max_new_tokens=20).tokens, TEXTS))
    assert together == alone
    # A stream that is not read to its end harms nothing.
    stream = generator.stream(TEXTS[0], max_new_tokens=20)
    next(stream)
    stream.close()
    assert generator.generate(TEXTS[1], max_new_tokens=20).tokens == alone[1]


#: Rules made of the answer without them, so that each changes what it says.
RULES: dict[str, Callable[[list[int]], dict[str, Any]]] = {
    "no_repeat_ngram_size": lambda answer: {"no_repeat_ngram_size": 1},
    "forced_bos_token_id": lambda answer: {"forced_bos_token_id": answer[0] ^ 1, "forced_eos_token_id": 1},
    "suppress_tokens": lambda answer: {"suppress_tokens": sorted(set(answer[1:3]))},
    "begin_suppress_tokens": lambda answer: {"begin_suppress_tokens": [answer[0]]},
    "min_length": lambda answer: {"min_length": 12, "eos_token_id": [1, answer[3]]},
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_of_the_folder(
    made: RecipeFolder, stating: Callable[..., Text2TextGenerator], rule: str
) -> None:
    unruled = Text2TextGenerator(made.folder, threads=1)
    rules = RULES[rule](expected(made, unruled, TEXTS[0], max_new_tokens=30, eos_token_id=None))
    generator = stating(**rules)
    if "eos_token_id" in rules:
        generator.folder.constants.pop("get_eos_ids"), generator.folder.constants.pop("get_eos_id")
    tokens = expected(made, generator, TEXTS[0], max_new_tokens=30, **{"eos_token_id": None, **rules})
    plain = expected(made, generator, TEXTS[0], max_new_tokens=30, eos_token_id=rules.get("eos_token_id"))
    assert tokens != plain
    is_endless = "eos_token_id" not in rules
    found = generator.generate(TEXTS[0], max_new_tokens=30, ignore_eos=is_endless)
    assert list(found.tokens) == tokens


def test_words_that_must_not_come(made: RecipeFolder, stating: Callable[..., Text2TextGenerator]) -> None:
    plain = expected(made, Text2TextGenerator(made.folder), TEXTS[0], eos_token_id=None)
    words = [plain[3:5], [plain[8]]]
    generator = stating(bad_words_ids=words)
    tokens = expected(made, generator, TEXTS[0], bad_words_ids=words, eos_token_id=None)
    assert tokens != plain
    assert list(generator.generate(TEXTS[0], max_new_tokens=NEW, ignore_eos=True).tokens) == tokens


def test_sources_that_do_not_fit(generator: Text2TextGenerator) -> None:
    before = generator.generate(TEXTS[0], max_new_tokens=5).tokens
    with pytest.raises(pteron.InputError, match=f"does not fit.*1 to {SOURCE} tokens; got 400 tokens"):
        generator.generate([5] * 400)
    with pytest.raises(pteron.InputError, match="has no tokens"):
        generator.generate([])
    with pytest.raises(pteron.InputError, match=r"does not know.*got 512"):
        generator.generate([5, 512])
    with pytest.raises(pteron.InputError, match="does not take the setting json_schema"):
        generator.generate(TEXTS[0], json_schema={})
    with pytest.raises(pteron.InputError, match="max_new_tokens"):
        generator.generate(TEXTS[0], max_new_tokens=0)
    with pytest.raises(TypeError, match="beams"):
        generator.generate(TEXTS[0], beams=4)
    assert generator.generate(TEXTS[0], max_new_tokens=5).tokens == before


def test_other_folders(made: RecipeFolder, recipe: RecipeFolder, tmp_path: Path) -> None:
    with pytest.raises(pteron.InputError, match=r"holds an encoder-decoder.*Text2TextGenerator"):
        Generator(made.folder)
    with pytest.raises(pteron.InputError, match=r"holds no encoder-decoder.*pteron\.llm\.Generator"):
        Text2TextGenerator(recipe.folder)
    with pytest.raises(FileNotFoundError):
        Text2TextGenerator(tmp_path)
    copied = Path(shutil.copytree(made.folder, tmp_path / "copy"))
    trained_tokenizer(600).save(str(copied / "tokenizer.json"))
    with pytest.raises(pteron.InputError, match="the tokenizer is another model's"):
        Text2TextGenerator(copied)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"suppress_tokens": ["a"]}, "suppress_tokens has entries that are no tokens"),
        ({"bad_words_ids": [3]}, "bad_words_ids is no list of lists"),
        ({"no_repeat_ngram_size": "x"}, "no_repeat_ngram_size is no number"),
    ],
)
def test_damaged_rules(
    stating: Callable[..., Text2TextGenerator], entries: dict[str, Any], text: str
) -> None:
    with pytest.raises(pteron.ProgramError, match=text):
        stating(**entries).generate(TEXTS[0])


def test_neither_torch_nor_transformers(made: RecipeFolder) -> None:
    import subprocess

    code = (
        "import sys; from pteron.llm import Text2TextGenerator;"
        f"made = Text2TextGenerator({str(made.folder)!r}, threads=1);"
        "made.generate('files', max_new_tokens=3);"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

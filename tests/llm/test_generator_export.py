"""From a model to text by the two halves: what `pteron.llm.export` writes, `Generator` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

import pteron.llm
from tests.llm.recipe_folder import RecipeFolder
from tests.llm.test_generator import PROMPT, transformers_text

MAX = 80


@pytest.fixture(scope="module")
def exported(recipe: RecipeFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's model, exported in one call, with logits of all positions as a second method."""
    folder = tmp_path_factory.mktemp("exported")
    pteron.llm.export(
        recipe.model, str(folder), max_seq_len=MAX, tokenizer=str(recipe.folder), all_logits=True
    )
    return folder


def test_greedy_is_that_of_transformers(recipe: RecipeFolder, exported: Path) -> None:
    generator = pteron.llm.Generator(exported, threads=1, prefill_chunk=4)
    assert generator.max_seq_len == MAX
    assert generator.folder.eos_ids == {1}
    assert generator.folder.can_rewind
    tokens = generator.tokenizer.encode(PROMPT)
    expected = transformers_text(recipe, tokens, 40)
    assert list(generator.generate(PROMPT, max_new_tokens=40).tokens) == expected
    fast = generator.generate(PROMPT, max_new_tokens=40, prompt_lookup_num_tokens=4)
    assert list(fast.tokens) == expected
    assert fast.proposed_tokens > 0


def test_both_methods_have_one_cache(exported: Path, copied: Path) -> None:
    plain = pteron.llm.Generator(exported)
    fast = pteron.llm.Generator(exported, draft=copied)
    settings = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0.9, "seed": 2}
    result = fast.generate(PROMPT, **settings)
    assert result.tokens == plain.generate(PROMPT, **settings).tokens
    assert result.accepted_tokens > 0


def test_conversations_travel(exported: Path, tmp_path: Path) -> None:
    generator = pteron.llm.Generator(exported)
    chat = generator.conversation("Be brief.", max_new_tokens=6, ignore_eos=True)
    chat.send("Why?")
    chat.save(tmp_path / "chat.bin")
    restored = generator.restore(tmp_path / "chat.bin", max_new_tokens=6, ignore_eos=True)
    assert restored.send("And then?").tokens == chat.send("And then?").tokens

"""Guesses of a draft and of the prompt: the text is the one without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pteron.errors import InputError
from pteron.llm import Generator
from pteron.llm.speculation import PromptLookup
from tests.llm.recipe_folder import CACHE, RecipeFolder, trained_tokenizer

PROMPT = "Every step lands by itself"
LONG: dict[str, Any] = {"max_new_tokens": 45, "ignore_eos": True}


def test_prompt_lookup_finds_the_latest_longest_match() -> None:
    lookup = PromptLookup(3)
    assert lookup.propose([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], 10) == [8, 1, 2]
    assert lookup.propose([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], 1) == [8]
    assert lookup.propose([5, 3, 7, 6, 3], 10) == [7, 6, 3]
    assert lookup.propose([1, 2, 3], 10) == []
    assert lookup.propose([1], 10) == []


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "seed": 4}, {"repetition_penalty": 1.2}])
def test_a_draft_changes_no_text(recipe: RecipeFolder, copied: Path, settings: dict[str, Any]) -> None:
    # The model itself as a draft: nearly every greedy guess is right.
    fast = Generator(recipe.folder, threads=1, draft=copied)
    plain = Generator(recipe.folder, threads=1)
    for _ in range(2):
        result = fast.generate(PROMPT, **LONG, **settings)
        assert result.tokens == plain.generate(PROMPT, **LONG, **settings).tokens
        assert result.proposed_tokens >= result.accepted_tokens > 0
    if not settings:
        assert result.accepted_tokens > 0.7 * result.proposed_tokens
    without = fast.generate(PROMPT, num_assistant_tokens=0, **LONG)
    assert without.proposed_tokens == 0


def test_guesses_end_with_the_cache_and_with_stops(recipe: RecipeFolder, copied: Path) -> None:
    fast, plain = Generator(recipe.folder, draft=copied), Generator(recipe.folder)
    whole = fast.generate(PROMPT, max_new_tokens=1000, ignore_eos=True)
    assert whole.prompt_tokens + len(whole.tokens) == CACHE + 1
    assert whole.tokens == plain.generate(PROMPT, max_new_tokens=1000, ignore_eos=True).tokens
    stop = whole.tokens[7]
    short = fast.generate(PROMPT, stop_token_ids=[stop], **LONG)
    assert short.tokens == plain.generate(PROMPT, stop_token_ids=[stop], **LONG).tokens
    # The guesses behind the stop are not in the cache that the next prompt finds.
    chat = fast.conversation(max_new_tokens=6, ignore_eos=True)
    other = plain.conversation(max_new_tokens=6, ignore_eos=True)
    for question in ("Why?", "And then?"):
        assert chat.send(question).tokens == other.send(question).tokens


def test_drafts_that_do_not_fit(recipe: RecipeFolder, copied: Path) -> None:
    tokenizer = trained_tokenizer(400)
    tokenizer.save(str(copied / "tokenizer.json"))
    with pytest.raises(InputError, match="another tokenizer"):
        Generator(recipe.folder, draft=copied)
    generator = Generator(recipe.folder)
    generator.folder.constants["can_rewind"] = False
    with pytest.raises(InputError, match="cannot check several tokens"):
        generator.generate(PROMPT, prompt_lookup_num_tokens=3)
    assert generator.generate(PROMPT, max_new_tokens=3).tokens

"""Several prompts at a time: the texts of each alone, errors, room for the next."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pteron.errors import InputError
from pteron.llm import Generator
from pteron.llm.cache_session import CacheSession
from tests.llm.recipe_folder import RecipeFolder

PROMPTS = [
    "The files",
    "A",
    "One owner for each rewrite, and the reason of it",
    "Errors say what is wrong:",
    "Why?",
]
DRAWN: dict[str, Any] = {"max_new_tokens": 12, "temperature": 0.9, "seed": 3, "ignore_eos": True}


@pytest.mark.parametrize(("threads", "parallel"), [(1, None), (2, None), (1, 4), (4, 2)])
def test_texts_are_those_of_each_prompt_alone(
    recipe: RecipeFolder, generator: Generator, threads: int, parallel: int | None
) -> None:
    batch = Generator(recipe.folder, threads=threads)
    expected = [generator.generate(prompt, **DRAWN) for prompt in PROMPTS]
    found = batch.generate_batch(PROMPTS, parallel=parallel, **DRAWN)
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.text for each in found] == [each.text for each in expected]
    # Once more, with the caches that wait; the lengths differ.
    again = batch.generate_batch([PROMPTS[2], [3, 4], PROMPTS[0]], parallel=parallel, max_new_tokens=5)
    assert [each.tokens for each in again] == [
        generator.generate(prompt, max_new_tokens=5).tokens for prompt in (PROMPTS[2], [3, 4], PROMPTS[0])
    ]
    assert batch.generate_batch([]) == []


def test_texts_run_at_the_same_time(recipe: RecipeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(3, timeout=60)
    extend = CacheSession.extend
    met = set()

    def together(self: CacheSession, *arguments: Any) -> Any:
        if id(self) not in met:
            met.add(id(self))
            meeting.wait()
        return extend(self, *arguments)

    monkeypatch.setattr(CacheSession, "extend", together)
    Generator(recipe.folder, threads=1, idle_caches=3).generate_batch(
        PROMPTS[:3], parallel=3, max_new_tokens=2
    )
    assert len(met) == 3


def test_a_prompt_that_cannot_be_used_ends_it_before_the_first_text(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CacheSession, "extend", None)
    for prompts, text in (
        ([*PROMPTS, "long " * 200], "does not fit"),
        ([[1, 2], [1 << 40]], "does not know"),
    ):
        with pytest.raises(InputError, match=text):
            generator.generate_batch(prompts)
    with pytest.raises(InputError, match="texts at a time"):
        generator.generate_batch(PROMPTS, parallel=0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        generator.generate_batch(PROMPTS, max_tokens=3)


def test_an_error_ends_the_others_and_the_next_batch_works(
    generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend = CacheSession.extend
    others = threading.Event()

    def failing(self: CacheSession, tokens: Any, *arguments: Any) -> Any:
        if len(tokens) == 2:
            assert others.wait(60)
            raise OSError("the disk is gone")
        others.set()
        return extend(self, tokens, *arguments)

    with monkeypatch.context() as changed:
        changed.setattr(CacheSession, "extend", failing)
        with pytest.raises(OSError, match="disk is gone"):
            generator.generate_batch([PROMPTS[2], [3, 4], *PROMPTS], parallel=2, ignore_eos=True)
    found = generator.generate_batch(PROMPTS[:2], max_new_tokens=3)
    assert [each.tokens for each in found] == [
        generator.generate(prompt, max_new_tokens=3).tokens for prompt in PROMPTS[:2]
    ]

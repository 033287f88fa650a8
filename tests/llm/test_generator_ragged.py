"""Several texts in one cache: each is the text that comes alone, whoever comes, goes, or fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pteron
from pteron.llm import Generator, export, shared_cache
from pteron.llm.shared_cache import SharedCache
from tests.llm.recipe_folder import CACHE, RecipeFolder
from tests.llm.test_generator_batch import DRAWN, PROMPTS

ROWS = 2 * CACHE


@pytest.fixture(scope="module")
def ragged(recipe: RecipeFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's model with a method for several sequences."""
    folder = tmp_path_factory.mktemp("ragged")
    export(recipe.model, folder, max_seq_len=ROWS, tokenizer=recipe.folder, ragged=True, all_logits=True)
    return folder


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """How many tokens of each text the calls had."""
    found: list[list[int]] = []
    run = SharedCache._run

    def recorded(self: SharedCache, batch: Any) -> None:
        found.append([len(each.tokens) for each in batch])
        run(self, batch)

    monkeypatch.setattr(SharedCache, "_run", recorded)
    return found


@pytest.mark.parametrize(("parallel", "chunk"), [(None, 512), (3, 4), (1, 512), (8, 1)])
def test_texts_are_those_of_each_prompt_alone(ragged: Path, parallel: int | None, chunk: int) -> None:
    generator = Generator(ragged, threads=1, prefill_chunk=chunk)
    for settings in (DRAWN, {"max_new_tokens": 12}, {**DRAWN, "prompt_lookup_num_tokens": 3}):
        expected = [generator.generate(prompt, **settings) for prompt in PROMPTS]
        found = generator.generate_batch(PROMPTS, parallel=parallel, **settings)
        assert [each.tokens for each in found] == [each.tokens for each in expected]
        assert [each.text for each in found] == [each.text for each in expected]
    assert generator.generate_batch([]) == []


def test_one_call_for_all(ragged: Path, batches: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    # However late a thread is, the others wait for it.
    monkeypatch.setattr(shared_cache, "_PATIENCE", 60.0)
    generator = Generator(ragged, threads=1)
    prompts = [generator.tokens_of(prompt) for prompt in PROMPTS[:4]]
    streams = [generator._join({"max_new_tokens": 30, "ignore_eos": True}, prompt) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda stream: stream.result, streams))
    expected = [generator.generate(prompt, max_new_tokens=30, ignore_eos=True) for prompt in prompts]
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert sorted(batches[0]) == sorted(map(len, prompts))
    assert batches[1:] == [[1] * 4] * 29


def test_texts_wait_for_rows_and_take_those_that_are_free(ragged: Path, batches: list[list[int]]) -> None:
    generator = Generator(ragged, threads=1)
    prompts = [f"{place} {PROMPTS[2]}" for place in range(7)]
    # Each is promised about 80 of the 192 rows.
    settings = {"max_new_tokens": 60, "ignore_eos": True}
    expected = [generator.generate(prompt, **settings).tokens for prompt in prompts]
    found = generator.generate_batch(prompts, **settings)
    assert [each.tokens for each in found] == expected
    assert 1 < max(map(len, batches)) < 4
    shared = generator._shared
    assert shared is not None
    assert (len(shared._rows), shared._promised) == (ROWS, 0)
    assert not shared._texts


def test_a_prompt_joins_texts_that_run(ragged: Path, batches: list[list[int]]) -> None:
    generator = Generator(ragged, threads=1)
    prompts = PROMPTS
    lengths = [40, 3, 5, 3, 3]
    shared = generator._shared
    assert shared is not None
    streams = [
        generator._join({"max_new_tokens": new, "ignore_eos": True}, generator.tokens_of(prompt))
        for prompt, new in zip(prompts, lengths, strict=True)
    ]
    # The first begins before the others.
    begun = [next(streams[0])]
    results: dict[int, Any] = {}

    def read(place: int) -> None:
        results[place] = streams[place].result

    threads = [threading.Thread(target=read, args=(place,)) for place in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert begun
    for place, (prompt, new) in enumerate(zip(prompts, lengths, strict=True)):
        alone = generator.generate(prompt, max_new_tokens=new, ignore_eos=True)
        assert results[place].tokens == alone.tokens
    assert any(1 in batch and max(batch) > 1 for batch in batches)
    assert not shared._texts


def test_a_text_that_is_cancelled_leaves_the_others(ragged: Path) -> None:
    generator = Generator(ragged, threads=1)
    alone = generator.generate(PROMPTS[2], max_new_tokens=30, ignore_eos=True)
    first, second = (
        generator._join({"max_new_tokens": 30, "ignore_eos": True}, generator.tokens_of(prompt))
        for prompt in (PROMPTS[0], PROMPTS[2])
    )
    reader = threading.Thread(target=lambda: second.result)
    next(first)
    reader.start()
    first.cancel()
    assert first.result.finish_reason == "cancelled"
    reader.join()
    assert second.result.tokens == alone.tokens
    late = generator.generate_batch(PROMPTS[:2], deadline=0.0)
    assert [each.finish_reason for each in late] == ["deadline", "deadline"]


def test_a_call_that_fails_ends_its_texts_and_the_next_batch_works(
    ragged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = Generator(ragged, threads=1)
    run: Callable[..., Any] = SharedCache._run
    calls = []

    def failing(self: SharedCache, batch: Any) -> None:
        calls.append(batch)
        if len(calls) == 4:
            method = self._method
            self._method = None  # type: ignore[assignment]
            try:
                run(self, batch)
            finally:
                self._method = method
        else:
            run(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(SharedCache, "_run", failing)
        with pytest.raises(AttributeError):
            generator.generate_batch(PROMPTS, max_new_tokens=20, ignore_eos=True)
    expected = [generator.generate(prompt, max_new_tokens=5).tokens for prompt in PROMPTS]
    found = generator.generate_batch(PROMPTS, max_new_tokens=5)
    assert [each.tokens for each in found] == expected
    assert generator._shared is not None
    assert len(generator._shared._rows) == ROWS


def test_more_tokens_than_were_promised(ragged: Path) -> None:
    generator = Generator(ragged, threads=1)
    shared = generator._shared
    assert shared is not None
    session = shared.join(4)
    assert (session.capacity, session.room) == (4, 4)
    row = session.extend([5, 6, 7])
    with pytest.raises(pteron.InputError, match="do not fit into the cache"):
        session.extend([8, 9])
    assert session.tokens == (5, 6, 7)
    # Back, and on again at the same positions.
    session.rewind(1)
    np.testing.assert_allclose(session.extend_all([6, 7])[-1], row, atol=1e-4)
    shared.leave(session)
    shared.leave(session)
    assert shared._promised == 0

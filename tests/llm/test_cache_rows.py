"""Rows of a cache that several texts share: side by side while there is room, all of them in the end."""

from __future__ import annotations

import random

import pytest

from pteron.llm.cache_rows import PAGE, CacheRows


def test_texts_that_take_turns_get_pages_of_their_own() -> None:
    rows = CacheRows(6 * PAGE)
    texts: list[list[int]] = [[], [], []]
    for _ in range(PAGE + 3):
        for text in texts:
            text.append(rows.take(text[-1] if text else None))
    for place, text in enumerate(texts):
        first, second = place * PAGE, (3 + place) * PAGE
        assert text == [*range(first, first + PAGE), *range(second, second + 3)]


def test_every_row_is_given_out_once() -> None:
    count = 3 * PAGE + 7
    rows, random_numbers = CacheRows(count), random.Random(0)
    texts: list[list[int]] = [[] for _ in range(5)]
    for _ in range(2000):
        text = random_numbers.choice(texts)
        if random_numbers.random() < 0.02:
            rows.give(text)
            text.clear()
        elif len(rows):
            text.append(rows.take(text[-1] if text else None))
        taken = [row for text in texts for row in text]
        assert len(taken) == len(set(taken)) == count - len(rows)
        assert set(taken) <= set(range(count))


def test_without_a_free_row_there_is_none() -> None:
    rows = CacheRows(2)
    assert [rows.take(None), rows.take(0)] == [0, 1]
    with pytest.raises(KeyError):
        rows.take(1)
    rows.give([0])
    assert rows.take(1) == 0

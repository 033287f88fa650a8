"""`forward_ragged`: logits of several sequences in one call against eager, each alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pteron
from pteron.llm import export
from tests.llm.tiny_models import FAMILIES, POSITIONS, VOCABULARY, WINDOW, llama, mamba
from tests.support.extent import is_full

LENGTHS = (2 * WINDOW + 5, 3, WINDOW + 2)
# Of the quick ones the family with a window.
_NAMES = tuple(FAMILIES) if is_full("LLM") else ("llama",)


class Sequences:
    """Sequences in one cache, whose rows are given out at random."""

    def __init__(self, path: Path) -> None:
        self.method = pteron.load(path).load_method("forward_ragged")
        self.free = np.random.default_rng(0).permutation(POSITIONS).tolist()
        self.rows: dict[int, list[int]] = {}

    def step(self, parts: list[tuple[int, int, list[int]]]) -> Any:
        """Logits of the last token of each part: number of a sequence, first position, tokens."""
        given: list[list[int]] = [[], [], [], [], []]
        for number, begin, tokens in parts:
            rows = self.rows.setdefault(number, [])
            while len(rows) < begin + len(tokens):
                rows.append(self.free.pop())
            end = begin + len(tokens)
            places = [*range(begin, end)], rows[begin:end], [number] * len(tokens)
            for held, new in zip(given, (tokens, *places), strict=False):
                held += new
            given[4].append(len(given[0]) - 1)
        return self.method(np.array([given[0]]), *(np.array(each) for each in given[1:]))[0]

    def leave(self, number: int) -> None:
        """The sequence has ended."""
        self.free += self.rows.pop(number)


@pytest.mark.parametrize("name", _NAMES)
def test_each_sequence_as_alone(name: str, tmp_path: Path) -> None:
    model = FAMILIES[name]()
    chance = torch.Generator().manual_seed(2)
    texts = [torch.randint(3, VOCABULARY, (1, length + 6), generator=chance) for length in LENGTHS]
    with torch.no_grad():
        expected = [model(ids, use_cache=False).logits[0].numpy() for ids in texts]
    sequences = Sequences(export(model, tmp_path, max_seq_len=POSITIONS, ragged=True).path)
    limit = 1e-4 * max(np.abs(each).max() for each in expected)

    def check(parts: list[tuple[int, int, int]]) -> None:
        asked = [(number, begin, texts[number % 3][0, begin:end].tolist()) for number, begin, end in parts]
        found = sequences.step(asked)
        for row, (number, _, end) in zip(found, parts, strict=True):
            np.testing.assert_allclose(row, expected[number % 3][end - 1], rtol=0, atol=limit)

    # The first prompt alone, in two chunks; then two more beside its tokens.
    check([(0, 0, 7)])
    check([(0, 7, LENGTHS[0]), (1, 0, LENGTHS[1])])
    check([(0, LENGTHS[0], LENGTHS[0] + 1), (1, LENGTHS[1], LENGTHS[1] + 1), (2, 0, LENGTHS[2] + 1)])
    for at in range(1, 4):
        check([(number, LENGTHS[number] + at, LENGTHS[number] + at + 1) for number in (2, 0)])
    # One goes, and another takes its rows, its positions and its text.
    sequences.leave(0)
    check([(3, 0, 9), (2, LENGTHS[2] + 4, LENGTHS[2] + 5), (1, LENGTHS[1] + 1, LENGTHS[1] + 4)])
    check([(3, 9, LENGTHS[0])])
    # Back to an earlier position of one.
    check([(3, 4, 6), (1, LENGTHS[1] + 4, LENGTHS[1] + 5)])


def test_weights_and_cache_are_those_of_forward(tmp_path: Path) -> None:
    plain = export(llama(), tmp_path / "plain", max_seq_len=POSITIONS)
    made = export(llama(), tmp_path / "ragged", max_seq_len=POSITIONS, ragged=True)
    # Instructions, and two numbers for each row.
    assert made.file_bytes < plain.file_bytes + 16 * POSITIONS + 60_000
    for model, batch in ((llama(), 2), (mamba(), 1)):
        with pytest.raises(ValueError, match=r"ragged=True.*for decoders with batch_size 1"):
            export(model, tmp_path / "two", max_seq_len=POSITIONS, ragged=True, batch_size=batch)

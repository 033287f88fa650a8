"""Sentences to token ids with the model's own tokenizer; needs no torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer


class SentenceTokenizer:
    """The ``tokenizer.json`` of a model folder, cut at ``max_tokens``, without padding."""

    def __init__(self, folder: str, max_tokens: int) -> None:
        file = Path(folder) / "tokenizer.json"
        self._tokenizer = (
            Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer.from_pretrained(folder)
        )
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def __call__(self, sentence: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(input_ids, attention_mask), both int64 [1, tokens]."""
        encoding = self._tokenizer.encode(sentence)
        ids = np.array([encoding.ids], dtype=np.int64)
        return ids, np.ones_like(ids)

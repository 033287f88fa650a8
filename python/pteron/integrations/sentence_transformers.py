"""pteron as a module of sentence-transformers: `SentenceTransformer(modules=[PteronModule(folder)])`.

The module holds the whole model, pooling and all. `encode` and what stands on it, evaluators and retrieval
among them, runs on the program; training does not.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import InputModule
from tokenizers import Tokenizer
from torch import Tensor

from pteron.embeddings.embedder import Embedder, listed_texts

__all__ = ["PteronModule"]


class PteronModule(InputModule):
    """A folder of `pteron.embeddings.export` as the one module of a `SentenceTransformer`.

    Prompts belong to the `SentenceTransformer`: `SentenceTransformer(modules=[module],
    prompts=module.embedder.prompts)`. Saved with it, the folder is copied; loading it again needs
    `trust_remote_code=True`, as every class of another package does.

    Attributes:
        embedder: the folder, opened.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        threads: int | None = None,
        max_seq_length: int | None = None,
    ) -> None:
        """Opens the folder; arguments and errors as those of `Embedder`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedder = Embedder(folder, threads=threads, max_seq_length=max_seq_length)

    @property
    def tokenizer(self) -> Tokenizer:  # type: ignore[override]
        """The tokenizer, of the package `tokenizers`."""
        found: Tokenizer = self.embedder.folder.tokenizer.inner
        return found

    @property
    def max_seq_length(self) -> int:
        """Tokens of a text at most."""
        return self.embedder.max_seq_length

    def get_embedding_dimension(self) -> int:
        """Numbers of a vector."""
        return self.embedder.folder.forward.dimension

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor | Any]:
        """Tokens of texts: `input_ids` and `attention_mask`, int64 [texts, tokens], and `prompt_length`.

        Raises InputTypeError for inputs that are no texts.
        """
        rows = self.embedder.tokens(listed_texts(inputs), prompt or "")
        longest = max(map(len, rows))
        pad = self.embedder.folder.pad
        return {
            "input_ids": torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows]),
            "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows]),
            "prompt_length": self.embedder.prompt_tokens(prompt or ""),
        }

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds `sentence_embedding`, float32 [texts, dimension], on the device of `input_ids`."""
        ids, lengths = features["input_ids"], features["attention_mask"].sum(dim=1)
        rows = [row[:length].tolist() for row, length in zip(ids.cpu(), lengths.tolist(), strict=True)]
        found = self.embedder.embed_tokens(rows, int(features.get("prompt_length", 0)), len(rows))
        features["sentence_embedding"] = torch.from_numpy(found).to(ids.device)
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Copies the files of the folder."""
        for path in self.embedder.folder.path.iterdir():
            if path.is_file():
                shutil.copyfile(path, Path(output_path) / path.name)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", *args: Any, **kwargs: Any) -> PteronModule:
        """Opens the folder that `save` wrote, on this machine."""
        return cls(Path(model_name_or_path, subfolder))

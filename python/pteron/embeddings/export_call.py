"""`pteron.embeddings.export`: a model of sentence-transformers to a folder; torch is imported by the call."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pteron.embeddings.export_model import ExportedEmbedder

__all__ = ["export"]

Scheme = Literal["int8-weight", "int4-weight", "int8-dynamic", "int4-dynamic"]


def export(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    scheme: Scheme | None = None,
    packed_weights: bool = False,
) -> ExportedEmbedder:
    """A model of sentence-transformers to a folder that `pteron.embeddings.Embedder` opens.

    The program's method `forward(input_ids int64 [B, T], attention_mask int64 [B, T])` gives the vectors,
    float32 [B, dimension], behind all modules of the model: transformer, pooling, dense layers,
    normalisation. B is 1 to `batch_size`, T 1 to 4,096 / `batch_size` (at least 16), so that memory stays
    small; texts with more tokens go one by one through `forward_long`, which shares the weights. Models that
    leave the prompt out of pooling take a third input of the same form: 1 for tokens that count.

    The folder is opened and compared with the model on some texts before it is put in its place.

    Args:
        model: a `SentenceTransformer` in float32, or the folder of one, which is loaded in float32. It is not
            changed.
        folder: where `model.pte`, the tokenizer's files and `config_sentence_transformers.json` go; it is
            made, and files of these names are replaced.
        max_seq_length: tokens of a text at most; None: what the model states.
        batch_size: texts in a call at most.
        scheme: how weights of the transformer are quantised, as in `pteron.llm.export`; None: as they are.
        packed_weights: store weights as this engine reads them, too, so that load packs nothing.

    Raises:
        ImportError: torch, sentence-transformers or torchao is not installed.
        ExampleMismatchError: without a scheme, a vector differs from the model's by more than 1e-4 of the
            largest number.
        ExportError: the model has a module, a pooling or a tokenizer that is not known, or is in training
            mode; `max_seq_length` is more than its positions, or is not given and the model states none.
        TypeError: `model` is not of sentence-transformers.
        ValueError: `max_seq_length`, `batch_size` or `scheme` is none of the above.
    """
    exporter = import_module("pteron.embeddings.export_model")
    made: ExportedEmbedder = exporter.export_model(
        model,
        folder,
        max_seq_length=max_seq_length,
        batch_size=batch_size,
        scheme=scheme,
        packed_weights=packed_weights,
    )
    return made

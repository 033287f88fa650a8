"""`pteron.llm.export`: a language model of transformers to a folder. torch is imported when it is called."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pteron.llm.export_folder import ExportedLanguageModel

__all__ = ["export"]

Scheme = Literal["int8-weight", "int4-weight", "int8-dynamic", "int4-dynamic"]


def export(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    max_seq_len: int,
    tokenizer: Any = None,
    scheme: Scheme | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    all_logits: bool = False,
    batch_size: int = 1,
    packed_weights: bool = False,
    max_source_len: int | None = None,
    ragged: bool = False,
    max_chunk: int | None = None,
    cache: Literal["int8"] | None = None,
) -> ExportedLanguageModel:
    """A language model of transformers to a folder that runs without torch and transformers.

    The program's method `forward(input_ids int64 [batch_size, S], cache_position int64 [S])` gives the
    logits of the last position, float32 [batch_size, 1, vocabulary]; S is 1 to `max_seq_len`. The cache is
    state of the program: a session has its own, and a prompt may come in chunks.

    An encoder-decoder has a method `encode` beside it, which takes the source once: `source` int64
    [batch_size, N] with N from 1 to `max_source_len` for one of texts, float32 [batch_size, bands, frames]
    for Whisper. It gives the last hidden state, float32 [batch_size, rows, width], and keeps keys and values
    of every decoder layer as state, which `forward` reads (`Program.load_methods(["encode", "forward"])`).

    A model with an image encoder (Idefics 3, SmolVLM) has methods by ExecuTorch's names beside `forward`:
    `vision_encoder` (float32 [1, 3, edge, edge] to float32 [1, rows, width]), `token_embedding` (int64
    [batch_size, S] to float32 [batch_size, S, width]), and `text_decoder`, which takes embeddings where
    `forward` takes tokens. `tokenizer` may be a processor then, which says how images are prepared. Of other
    models with images or sound the text part alone is exported, and a UserWarning says so.

    A state-space model (Mamba) takes one token in a call, S = 1, and its state cannot go back.

    Args:
        model: a model of transformers in evaluation mode, or the folder of one. It is not changed.
        folder: where `model.pte`, `config.json`, `generation_config.json` and the tokenizer's files go; it
            is made, and files of these names are replaced.
        max_seq_len: tokens that the cache holds, prompt and answer together.
        tokenizer: a tokenizer of transformers, or a folder with the files of one; by default the folder of
            the model, where `model` is one.
        scheme: how weights are quantised: `"int8-weight"` (8 bits for each row), `"int4-weight"` (4 bits in
            groups of 32 in linear layers; embeddings and a head that shares their table 8 bits for each row),
            `"int8-dynamic"` (weights as in `"int8-weight"`, and inputs of linear layers 8 bits with scales of
            the call), `"int4-dynamic"` (weights as in `"int4-weight"`, and inputs of linear layers of 4 bits,
            and of a head that shares the table, as in `"int8-dynamic"`: ExecuTorch's 8da4w). None: as they
            are. What is quantised lies in files without a name beside `folder` until it is written.
        dtype: of weights and cache; None: as the model is.
        all_logits: a second method `forward_all` gives the logits of every position, float32
            [batch_size, S, vocabulary]. It shares weights and cache (`Program.load_methods`).
        batch_size: sequences in a call, all at the same positions.
        packed_weights: store weights as this engine reads them, too, so that load packs nothing.
        max_source_len: tokens of a source at most, for encoder-decoders of texts. Whisper's is in its
            configuration.
        ragged: a further method `forward_ragged` takes tokens of several sequences, whatever their lengths,
            which share the `max_seq_len` rows of the cache: `Generator.generate_batch` uses it. For decoders.
        max_chunk: tokens of a call at most; a longer prompt comes in chunks. Layers with a window then keep
            the keys and values of its last `window + max_chunk - 1` positions alone, in a ring, so that long
            texts need little memory; such a cache cannot go back. None: a call takes `max_seq_len` tokens,
            and all layers keep all positions. For decoders, without `ragged`.
        cache: how keys and values are kept: `"int8"` (8 bits with a factor for each row, a little more than a
            quarter of the memory; attention reads the integers), for decoders that compute in float32. None:
            as `dtype`.

    Raises:
        ImportError: torch, transformers or torchao is not installed.
        ExportError: the model is in training mode, keeps a state other than keys and values, or attends in a
            way that is not known; `max_seq_len` or `max_source_len` is more than its positions; `tokenizer`
            prepares images that the program would not take.
        TypeError: `model` is not of transformers.
        ValueError: `max_seq_len`, `max_source_len`, `batch_size`, `max_chunk`, `scheme`, `dtype` or `cache`
            is none of the above; `ragged` is given for something else than a decoder with a `batch_size` of
            1, `max_chunk` or `cache` for something else than a decoder.
    """
    exporter = import_module("pteron.llm.export_model")
    settings = exporter.Settings(
        max_seq_len=max_seq_len,
        tokenizer=tokenizer,
        scheme=scheme,
        dtype=dtype,
        all_logits=all_logits,
        batch_size=batch_size,
        packed_weights=packed_weights,
        max_source_len=max_source_len,
        ragged=ragged,
        max_chunk=max_chunk,
        cache=cache,
    )
    made: ExportedLanguageModel = exporter.export_model(model, folder, settings)
    return made

"""The stages behind `pteron.embeddings.export`: check, capture, lower, compare, write."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from pteron.embeddings.embedder import Embedder
from pteron.embeddings.embedding_folder import FORWARD, LONG, PAD, SETTINGS
from pteron.embeddings.export_call import Scheme
from pteron.embeddings.pooling import exported_modules
from pteron.errors import ExampleMismatchError, ExportError
from pteron.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from pteron.llm.export_quantised import quantise
from pteron.llm.export_stages import copied
from pteron.llm.model_folder import PROGRAM

#: Tokens of all texts of a call of `forward` at most, for memory, and of one text there at least.
_MOST_TOKENS, _FEWEST_TOKENS = 4096, 16
#: Texts and tokens of the example that is traced; other numbers than any extent of a small model's weights.
_TEXTS, _TOKENS = 2, 5
#: Largest difference from the model, as a part of the largest number of a vector.
_TOLERANCE = 1e-4
#: Texts that are compared, with one that is cut where texts of that length take little time.
_COMPARED = ("A cat sits on the mat.", "", "one two three " * 7, "Who wrote it, and why?")
_MOST_COMPARED = 512
_WRITTEN = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", PROGRAM, SETTINGS)


@dataclass(frozen=True)
class ExportedEmbedder:
    """What `pteron.embeddings.export` wrote.

    Attributes:
        folder: the folder. `path`: its program. `file_bytes`: the program's size.
        dimension: numbers of a vector. `max_seq_length`: tokens of a text at most.
        difference: the largest from the model on the compared texts, as a part of the largest number.
    """

    folder: Path
    path: Path
    file_bytes: int
    dimension: int
    max_seq_length: int
    difference: float


class _Encoder(nn.Module):
    """All modules of a model: tokens to vectors."""

    def __init__(self, transformer: nn.Module, modules: list[nn.Module]) -> None:
        super().__init__()
        self.transformer, self.rest = transformer, nn.ModuleList(modules)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, pooled_mask: Tensor | None = None) -> Tensor:
        hidden = self.transformer(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        counted = attention_mask if pooled_mask is None else pooled_mask
        features = {"token_embeddings": hidden, "attention_mask": attention_mask, "pooled_mask": counted}
        for module in self.rest:
            features = module(features)
        vectors: Tensor = features["sentence_embedding"]
        return vectors


def export_model(
    source: Any,
    folder: str | os.PathLike[str],
    *,
    max_seq_length: int | None,
    batch_size: int,
    scheme: str | None,
    packed_weights: bool,
) -> ExportedEmbedder:
    """`pteron.embeddings.export`; the arguments are described there."""
    _check_settings(max_seq_length, batch_size, scheme)
    model = _opened(source)
    transformer = _checked_transformer(model)
    modules, excludes = exported_modules(list(model.children())[1:])
    length = _length(transformer, max_seq_length)
    with torch.no_grad():
        prepared = copied(transformer.model, None)
        if scheme is not None:
            quantise(prepared, scheme, folder)
        encoder = _Encoder(prepared, modules).eval()
        program = to_edge_transform_and_lower(
            _methods(encoder, length, batch_size, 3 if excludes else 2),
            constant_methods={PAD: int(transformer.tokenizer.pad_token_id)},
        ).to_executorch(ExecutorchBackendConfig(packed_weights=packed_weights))
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    # Beside the files of their place, so that moving them copies nothing.
    with tempfile.TemporaryDirectory(dir=place) as made:
        program.save(Path(made) / PROGRAM)
        _write_tokenizer(transformer, Path(made))
        (Path(made) / SETTINGS).write_text(json.dumps(_settings(model), indent=2), encoding="utf-8")
        embedder = Embedder(made)
        difference = _difference(model, embedder, length)
        if scheme is None and not difference <= _TOLERANCE:
            raise ExampleMismatchError(
                f"embeddings.export: vectors differ from the model's by {difference:.1e} of their largest",
                outputs=("sentence_embedding",),
                difference=difference,
            )
        for name in _WRITTEN:
            if (Path(made) / name).exists():
                shutil.move(Path(made) / name, place / name)
    path = place / PROGRAM
    return ExportedEmbedder(
        place, path, path.stat().st_size, embedder.folder.forward.dimension, length, difference
    )


def _check_settings(max_seq_length: int | None, batch_size: int, scheme: str | None) -> None:
    lengths = {"batch_size": batch_size} | (
        {} if max_seq_length is None else {"max_seq_length": max_seq_length}
    )
    for name, value in lengths.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"embeddings.export({name}=...): expected a number from 1 up, got {value!r}")
    if scheme is not None and scheme not in get_args(Scheme):
        raise ValueError(f"embeddings.export(scheme=...): expected one of {get_args(Scheme)}, got {scheme!r}")


def _opened(source: Any) -> SentenceTransformer:
    if isinstance(source, (str, os.PathLike)):
        kept = {"dtype": torch.float32}
        model = SentenceTransformer(os.fspath(source), device="cpu", model_kwargs=kept)
        model.eval()
        return model
    if not isinstance(source, SentenceTransformer):
        raise TypeError(
            f"embeddings.export: expected a SentenceTransformer or a folder, got {type(source).__name__}"
        )
    if source.training:
        raise ExportError("embeddings.export: the model is in training mode", hint="call model.eval() before")
    found = {each.dtype for each in source.parameters()} - {torch.float32}
    if found:
        raise ExportError(
            f"embeddings.export: the model has weights of {sorted(map(str, found))[0]}",
            hint="call model.float() before",
        )
    return source


def _checked_transformer(model: SentenceTransformer) -> Any:
    """The first module. ExportError for one whose texts become tokens, or tokens vectors, in another way."""
    first: Any = next(iter(model.children()))
    if type(first) is not Transformer:
        raise ExportError(
            f"embeddings.export: the module {type(first).__name__} is not known",
            expected="a Transformer as the first module",
        )
    entry = first.modality_config.get("text", {})
    output = entry.get("method_output_name")
    is_plain = output == "last_hidden_state" or tuple(output or ()) == ("last_hidden_state",)
    if entry.get("method") != "forward" or not is_plain or first.module_output_name != "token_embeddings":
        raise ExportError(
            f"embeddings.export: {type(first.model).__name__} gives no vectors of tokens",
            expected="the output last_hidden_state of forward",
        )
    settings = {
        "a chat template": "message" in first.modality_config,
        "processing_kwargs": bool(first.processing_kwargs),
        "query_length": first.query_length is not None,
        "document_length": first.document_length is not None,
        "query_expansion": first.query_expansion is not None,
    }
    given = [name for name, is_given in settings.items() if is_given]
    if given:
        raise ExportError(f"embeddings.export: the Transformer module has {given[0]}, which is not exported")
    tokenizer = first.tokenizer
    if tokenizer is None or not tokenizer.is_fast:
        raise ExportError(
            f"embeddings.export: {type(tokenizer).__name__} has no tokenizer.json",
            expected="a tokenizer of the package tokenizers",
        )
    if tokenizer.pad_token_id is None:
        raise ExportError("embeddings.export: the tokenizer has no token that fills rows up (pad_token)")
    kinds = tokenizer("a text").get("token_type_ids", [0])
    if any(kinds):
        raise ExportError(f"embeddings.export: {type(tokenizer).__name__} gives token types other than 0")
    return first


def _length(transformer: Any, given: int | None) -> int:
    """Tokens of a text at most. ExportError for more than the model has positions."""
    config = transformer.model.config
    positions = getattr(config, "max_position_embeddings", None)
    stated = [each for each in (positions, transformer.max_seq_length) if isinstance(each, int) and each > 0]
    # A tokenizer without a limit states an astronomic number.
    length = min(stated, default=1 << 30) if given is None else given
    if length >= 1 << 20:
        raise ExportError(
            "embeddings.export: neither the model nor its tokenizer states how long a text may be",
            hint="give max_seq_length=",
        )
    if given is not None and isinstance(positions, int) and 0 < positions < given:
        raise ExportError(
            "embeddings.export: the model has positions for fewer tokens",
            argument="max_seq_length",
            expected=f"at most {positions}",
            got=str(given),
        )
    return length


def _methods(encoder: nn.Module, length: int, batch_size: int, inputs: int) -> dict[str, ExportedProgram]:
    """`forward` for several texts, and `forward_long` for longer ones where that does not take them all."""
    most = min(length, max(_MOST_TOKENS // batch_size, _FEWEST_TOKENS)) if batch_size > 1 else length
    methods = {FORWARD: _captured(encoder, batch_size, most, inputs)}
    if most < length:
        methods[LONG] = _captured(encoder, 1, length, inputs)
    return methods


def _captured(encoder: nn.Module, texts: int, tokens: int, inputs: int) -> ExportedProgram:
    names = ("input_ids", "attention_mask", "pooled_mask")[:inputs]
    shape = (min(_TEXTS, texts), min(_TOKENS, tokens))
    # A tensor for each input: capturing takes one object that is given twice for one input.
    example = tuple(torch.ones(shape, dtype=torch.int64) for _ in names)
    extents = {1: Dim("tokens", min=1, max=tokens)}
    if texts > 1:
        extents[0] = Dim("texts", min=1, max=texts)
    return torch.export.export(encoder, example, dynamic_shapes=dict.fromkeys(names, extents), strict=False)


def _write_tokenizer(transformer: Any, folder: Path) -> None:
    transformer.tokenizer.save_pretrained(folder)


def _settings(model: SentenceTransformer) -> dict[str, Any]:
    """What sentence-transformers states of a model beside its modules, by its own names."""
    measure = model.similarity_fn_name
    return {
        "prompts": model.prompts,
        "default_prompt_name": model.default_prompt_name,
        "similarity_fn_name": getattr(measure, "value", measure),
        "truncate_dim": model.truncate_dim,
    }


def _difference(model: SentenceTransformer, embedder: Embedder, length: int) -> float:
    """The largest from the model, as a part of the largest number."""
    texts = list(_COMPARED)
    if length <= _MOST_COMPARED:
        texts.append("word " * 2 * length)
    if not embedder.folder.tokenizer.encode(""):
        texts.remove("")
    found = 0.0
    kept = model.max_seq_length
    model.max_seq_length = length
    try:
        for name in (None, *model.prompts):
            expected = np.asarray(model.encode(texts, prompt_name=name, show_progress_bar=False))
            largest = max(float(np.abs(expected).max()), 1e-30)
            got = embedder.encode(texts, prompt_name=name)
            found = max(found, float(np.abs(got - expected).max()) / largest)
    finally:
        model.max_seq_length = kept
    return found

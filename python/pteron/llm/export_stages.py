"""What all kinds of language models share on their way to a folder: settings, a copy, the files."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
)

from pteron.errors import ExportError
from pteron.exir import ExecutorchProgramManager
from pteron.llm.export_call import Scheme
from pteron.llm.export_folder import (
    PROGRAM,
    ExportedLanguageModel,
    has_tokenizer,
    write_configurations,
    write_tokenizer,
)


@dataclass(frozen=True)
class Settings:
    """The settings of `pteron.llm.export`, which describes them."""

    max_seq_len: int
    max_source_len: int | None
    tokenizer: Any
    scheme: str | None
    dtype: str | None
    all_logits: bool
    batch_size: int
    packed_weights: bool
    ragged: bool
    max_chunk: int | None = None
    cache: str | None = None


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: What a user may do with a model that is refused.
OTHER_WAY = "export its stages: pteron.integrations.transformers, PteronExporter().export_for_generation"


def check_settings(
    lengths: dict[str, int | None], scheme: str | None, dtype: str | None, cache: str | None = None
) -> None:
    """ValueError for a length, a scheme, a type of elements or a kind of cache that is none."""
    for name, value in lengths.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"llm.export({name}=...): expected a number from 1 up, got {value!r}")
    if scheme is not None and scheme not in get_args(Scheme):
        raise ValueError(f"llm.export(scheme=...): expected one of {get_args(Scheme)}, got {scheme!r}")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"llm.export(dtype=...): expected one of {tuple(DTYPES)}, got {dtype!r}")
    if cache not in (None, "int8"):
        raise ValueError(f'llm.export(cache=...): expected "int8" or None, got {cache!r}')


def check_positions(name: str, positions: Any, length: int, argument: str = "max_seq_len") -> None:
    """ExportError where the model has positions for fewer tokens than the argument says."""
    if isinstance(positions, int) and length > positions:
        raise ExportError(
            f"llm.export: {name} has positions for fewer tokens",
            argument=argument,
            expected=f"at most {positions}",
            got=str(length),
        )


def opened(source: str | os.PathLike[str], dtype: str | None) -> Any:
    """The model of a folder, in evaluation mode, by the class that its configuration asks for."""
    config = AutoConfig.from_pretrained(source)
    kind: Any = AutoModelForCausalLM
    if config.is_encoder_decoder:
        is_speech = type(config) in AutoModelForSpeechSeq2Seq._model_mapping
        kind = AutoModelForSpeechSeq2Seq if is_speech else AutoModelForSeq2SeqLM
    elif (
        type(config) not in kind._model_mapping and type(config) in AutoModelForImageTextToText._model_mapping
    ):
        kind = AutoModelForImageTextToText
    return kind.from_pretrained(source, dtype=dtype or "auto").eval()


def copied(model: Any, dtype: str | None) -> Any:
    """A model with the same weights whose modules may be replaced; quantised layers have their own."""
    shared: dict[int, Tensor] = {id(buffer): buffer for buffer in model.buffers()}
    for parameter in model.parameters():
        is_kept = dtype is None or parameter.dtype == DTYPES[dtype]
        shared[id(parameter)] = parameter if is_kept else nn.Parameter(parameter.to(DTYPES[dtype or ""]))
    return copy.deepcopy(model, shared)


def does_attention_itself(model: Any) -> ExportError:
    """The error of a family that the exporter cannot change."""
    return ExportError(
        f"llm.export: {type(model).__name__} does not take its attention and its cache from transformers' "
        "interfaces",
        hint=OTHER_WAY,
    )


def tokenizer_of(source: Path, given: Any) -> Any:
    """The tokenizer to write: the given one, else the folder of the model where it holds one."""
    return source if given is None and has_tokenizer(source) else given


def write_folder(
    program: ExecutorchProgramManager,
    model: Any,
    folder: str | os.PathLike[str],
    tokenizer: Any,
    metadata: dict[str, Any],
    others: Iterable[tuple[str, str]] = (),
) -> ExportedLanguageModel:
    """The program, the model's configurations, the tokenizer, and other texts by name of file."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    path = place / PROGRAM
    program.save(path)
    write_configurations(model, place)
    write_tokenizer(tokenizer, place)
    for name, text in others:
        (place / name).write_text(text, encoding="utf-8")
    return ExportedLanguageModel(place, path, path.stat().st_size, metadata)

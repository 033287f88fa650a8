"""What an exported language model's folder holds beside its program, and what its constant methods state."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pteron.errors import ExportError

PROGRAM = "model.pte"
#: Files of tokenizers by the names that their authors publish, and what ends others.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tekken.json",
)
_TOKENIZER_ENDINGS = (".model", ".tiktoken")
#: Extents of keys or values: batch, heads, positions, dim.
_HEADED = 4
#: Numbers of element types in program files.
_DTYPES = {torch.float16: 5, torch.float32: 6, torch.bfloat16: 15}


@dataclass(frozen=True)
class ExportedLanguageModel:
    """What `pteron.llm.export` wrote.

    Attributes:
        folder: the folder. `path`: its program.
        file_bytes: size of the program.
        metadata: constant methods of the program: name → value.
    """

    folder: Path
    path: Path
    file_bytes: int
    metadata: Mapping[str, Any]


def constant_methods(
    model: Any, buffers: Iterable[tuple[torch.Tensor, ...] | None], max_seq_len: int, batch_size: int
) -> dict[str, Any]:
    """Methods that give constants, by ExecuTorch's names.

    What neither the model's generation configuration nor its configuration states is left out.
    """
    config = model.config.get_text_config()
    caches = [each for each in buffers if each is not None]
    stated = {
        "get_max_seq_len": max_seq_len,
        "get_max_context_len": max_seq_len,
        "get_vocab_size": model.get_output_embeddings().weight.shape[0],
        "get_n_layers": config.num_hidden_layers,
        "get_max_batch_size": batch_size,
        "use_kv_cache": True,
        "use_sdpa_with_kv_cache": False,
        "enable_dynamic_shape": True,
        # Of int8 keys and values, the factors are of the type that is computed in.
        "get_dtype": _DTYPES[caches[0][-1].dtype],
    }
    shape = caches[0][0].shape
    if len(shape) == _HEADED:  # States of recurrences have no heads.
        stated |= {"get_n_kv_heads": shape[1], "get_head_dim": shape[3]}
    begin, ends = (_token_ids(model, f"{name}_token_id") for name in ("bos", "eos"))
    if begin:
        stated["get_bos_id"] = begin[0]
    if ends:
        stated |= {"get_eos_id": ends[0], "get_eos_ids": ends}
    window = getattr(config, "sliding_window", None)
    if isinstance(window, int):
        stated["sliding_window"] = window
    return stated


def _token_ids(model: Any, name: str) -> list[int]:
    for owner in (getattr(model, "generation_config", None), model.config.get_text_config()):
        found = getattr(owner, name, None)
        if found is not None:
            return [int(each) for each in (found if isinstance(found, (list, tuple)) else [found])]
    return []


def write_configurations(model: nn.Module, folder: Path) -> None:
    """`config.json`, and `generation_config.json` where the model has one."""
    for name in ("config", "generation_config"):
        config: Any = getattr(model, name, None)
        if config is not None:
            config.to_json_file(folder / f"{name}.json")


def write_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Files of `tokenizer`: a tokenizer of transformers, or a folder; None writes nothing.

    ExportError for a folder without a tokenizer, TypeError for anything else.
    """
    if tokenizer is None:
        return
    if callable(getattr(tokenizer, "save_pretrained", None)):
        tokenizer.save_pretrained(folder)
        return
    source = Path(tokenizer)
    files = [path for path in sorted(source.glob("*")) if _is_tokenizers(path)]
    if not files:
        raise ExportError(f"llm.export(tokenizer=...): {source.name!r} holds no file of a tokenizer")
    for path in files:
        if path.resolve() != (folder / path.name).resolve():
            shutil.copyfile(path, folder / path.name)


def has_tokenizer(folder: Path) -> bool:
    """Does the folder hold files of a tokenizer?"""
    return any(_is_tokenizers(path) for path in folder.glob("*"))


def _is_tokenizers(path: Path) -> bool:
    return path.name in _TOKENIZER_FILES or path.suffix in _TOKENIZER_ENDINGS

"""A folder with an embedding model: the program, its tokenizer, and what sentence-transformers' file states.

Nobody trusts a folder: a program with other inputs, and JSON that states no prompts where prompts belong, are
`ProgramError`s with the name of the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pteron
from pteron.embeddings.similarity import SIMILARITIES
from pteron.llm.model_folder import PROGRAM, damaged, read_json
from pteron.llm.tokenizer import FastTokenizer

#: The method for several texts at once, and the one for a single text with more tokens than it takes.
FORWARD, LONG = "forward", "forward_long"
#: The constant method that states the token which fills rows up.
PAD = "pad_token_id"
SETTINGS = "config_sentence_transformers.json"
_TOKENIZER, _TOKENIZER_SETTINGS = "tokenizer.json", "tokenizer_config.json"


@dataclass(frozen=True)
class Extents:
    """What a method takes: at most so many texts, of at most so many tokens each.

    `has_pooled`: is there a third input, the tokens that count when a text's tokens become one vector?
    """

    texts: int
    tokens: int
    dimension: int
    has_pooled: bool


class EmbeddingFolder:
    """What a folder states.

    Attributes:
        path: the folder. `program`: its program. `tokenizer`: of its `tokenizer.json`.
        forward: what `forward` takes. `long`: what `forward_long` takes; None where there is no such method.
        pad: the token that fills rows up.
        prompts: texts to put in front, by name. `default_prompt_name`: the one of calls that name none.
        similarity: "cosine", "dot", "euclidean" or "manhattan".
        truncate_dim: numbers of a vector that are kept; None: all.
        truncation_side: where long texts lose tokens, "right" or "left".
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the folder.

        FileNotFoundError without a program or tokenizer, ProgramError where something is damaged, ImportError
        without the package `tokenizers`.
        """
        self.path = Path(path)
        if not self.path.is_dir():
            raise FileNotFoundError(2, "there is no such folder", str(self.path))
        self.program = pteron.load(self.path / PROGRAM)
        self.forward = _extents(self.program, FORWARD)
        self.long = _extents(self.program, LONG) if LONG in self.program.methods else None
        if self.long and (self.long.texts, self.long.dimension, self.long.has_pooled) != (
            1,
            self.forward.dimension,
            self.forward.has_pooled,
        ):
            raise damaged(PROGRAM, f"{LONG} does not take one text as {FORWARD} takes several")
        self.pad = _pad(self.program)
        if not (self.path / _TOKENIZER).is_file():
            raise FileNotFoundError(2, f"the folder has no {_TOKENIZER}", str(self.path))
        self.tokenizer = FastTokenizer(self.path / _TOKENIZER)
        settings = read_json(self.path / SETTINGS)
        self.prompts = _prompts(settings)
        self.default_prompt_name = settings.get("default_prompt_name")
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            raise damaged(SETTINGS, "default_prompt_name is the name of no prompt")
        self.similarity: str = settings.get("similarity_fn_name") or "cosine"
        if self.similarity not in SIMILARITIES:
            raise damaged(SETTINGS, f"similarity_fn_name is none of {', '.join(SIMILARITIES)}")
        self.truncate_dim: int | None = settings.get("truncate_dim")
        if self.truncate_dim is not None and not is_between(self.truncate_dim, self.forward.dimension):
            raise damaged(SETTINGS, f"truncate_dim is no number from 1 to {self.forward.dimension}")
        side = read_json(self.path / _TOKENIZER_SETTINGS).get("truncation_side", "right")
        if side not in ("left", "right"):
            raise damaged(_TOKENIZER_SETTINGS, "truncation_side is neither left nor right")
        self.truncation_side: str = side

    @property
    def max_seq_length(self) -> int:
        """Tokens of a text at most."""
        return max(each.tokens for each in (self.forward, self.long) if each)


def is_between(value: Any, most: int) -> bool:
    """Is it a whole number from 1 to `most`?"""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _extents(program: pteron.Program, method: str) -> Extents:
    if method not in program.methods:
        raise damaged(PROGRAM, f"no method {method}")
    inputs, outputs = program.inputs(method), program.outputs(method)
    shapes = [tuple(spec.shape or ()) for spec in inputs if spec.kind == "tensor" and spec.dtype == "int64"]
    if len(shapes) != len(inputs) or len(shapes) not in (2, 3) or any(len(shape) != 2 for shape in shapes):
        raise damaged(PROGRAM, f"{method} does not take token ids and masks, int64 [texts, tokens]")
    result = tuple(outputs[0].shape or ()) if len(outputs) == 1 else ()
    if len(result) != 2 or not isinstance(result[1], int) or outputs[0].dtype != "float32":
        raise damaged(PROGRAM, f"{method} does not give vectors, float32 [texts, dimension]")
    texts, tokens = shapes[0]
    if any(not isinstance(extent, int) and 1 not in extent for extent in shapes[0]):
        raise damaged(PROGRAM, f"{method} does not take one text of one token")
    if isinstance(tokens, int) or (isinstance(texts, int) and texts != 1):
        raise damaged(PROGRAM, f"{method} takes a fixed number of texts or tokens; export it as dynamic")
    return Extents(1 if isinstance(texts, int) else texts.max, tokens.max, result[1], len(shapes) == 3)


def _pad(program: pteron.Program) -> int:
    outputs = program.outputs(PAD) if PAD in program.methods and not program.inputs(PAD) else ()
    value = outputs[0].value if len(outputs) == 1 else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise damaged(PROGRAM, f"no method {PAD} states the token that fills rows up")
    return value


def _prompts(settings: Mapping[str, Any]) -> dict[str, str]:
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text or "", str) for text in prompts.values()):
        raise damaged(SETTINGS, "prompts is no object of texts by name")
    return {name: text or "" for name, text in prompts.items()}

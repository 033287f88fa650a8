"""A folder with a language model: the program, its tokenizer's files, and what JSON files and constant
methods state.

Nobody trusts a folder: JSON that is none, numbers that are none and programs with other inputs are
`ProgramError`s with the name of the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pteron
from pteron.errors import ProgramError

#: The program of a folder.
PROGRAM = "model.pte"
_METHOD = "forward"
_ALL = "forward_all"
_REMEDY = "export the model again, or fetch the folder again"
#: JSON files beside a program are small; a longer one is refused unread.
_MOST_BYTES = 64 << 20
# The fingerprint reads so many blocks of a file, evenly spread, of so many bytes each.
_BLOCKS, _BLOCK = 64, 16 << 10


@dataclass(frozen=True)
class Signature:
    """How `forward` is called.

    Attributes:
        batch: sequences in a call. `chunk`: most tokens in a call. `vocabulary`: logits of a position.
        positions: "vector" (a position for each token), "start" (that of the first), or "none": no cache.
        all_positions: does the method give logits of every position, not of the last one alone?
    """

    batch: int
    chunk: int
    vocabulary: int
    positions: str
    all_positions: bool


class ModelFolder:
    """What a folder, or a program alone, states: checked when it is opened.

    Attributes:
        path: the folder. `program`: its program, loaded from `program_path` and `data_files`.
        signature: how `forward` is called.
        config, generation_config, tokenizer_config: the JSON files of these names; empty where there is none.
        constants: what the program's constant methods give, by name.
    """

    def __init__(
        self, path: str | os.PathLike[str], data_files: Sequence[str | os.PathLike[str]] = ()
    ) -> None:
        """Opens the folder, or the program of this path with these data files: JSON files beside it count
        only where the folder is what was named.

        FileNotFoundError without a program, ProgramError where something is damaged.
        """
        named = Path(path)
        is_program = named.is_file()
        self.path = named.parent if is_program else named
        if not self.path.is_dir():
            raise FileNotFoundError(2, "there is no such folder", str(self.path))
        self.program_path = named if is_program else self.path / PROGRAM
        self.data_files = [Path(each) for each in data_files] or (
            [] if is_program else sorted(self.path.glob("*.ptd"))
        )
        self.program = pteron.load(self.program_path, data=self.data_files or None)
        if _METHOD not in self.program.methods:
            raise damaged(PROGRAM, f"no method {_METHOD}")
        self.signature = _signature(self.program, _METHOD)
        names = ("config.json", "generation_config.json", "tokenizer_config.json")
        stated = [{} if is_program else read_json(self.path / name) for name in names]
        self.config, self.generation_config, self.tokenizer_config = stated
        self.constants: dict[str, Any] = dict(_constants(self.program))

    @cached_property
    def max_seq_len(self) -> int:
        """Tokens that the cache holds."""
        cache = self.generation_config.get("cache_config")
        found = (
            self.constants.get("get_max_context_len"),
            self.constants.get("get_max_seq_len"),
            cache.get("max_cache_len") if isinstance(cache, dict) else None,
        )
        length = next((value for value in found if value is not None), None)
        if length is None and self.signature.positions == "none":
            length = self.signature.chunk
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise damaged(PROGRAM, "no method get_max_seq_len states how long its cache is")
        return length

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a text."""
        found = [self.constants.get(name) for name in ("get_eos_ids", "get_eos_id")]
        found += [self.generation_config.get("eos_token_id"), self.config.get("eos_token_id")]
        return frozenset(_ids(next((value for value in found if value not in (None, [])), [])))

    @cached_property
    def bos_id(self) -> int | None:
        """The token that begins a text, where one is stated."""
        found = [self.constants.get("get_bos_id"), self.generation_config.get("bos_token_id")]
        found.append(self.config.get("bos_token_id"))
        ids = _ids(next((value for value in found if value is not None), []))
        return ids[0] if ids else None

    @cached_property
    def all_positions_method(self) -> str | None:
        """The method that gives logits of every position of a call; None where there is none."""
        if self.signature.all_positions:
            return _METHOD
        if _ALL in self.program.methods and _signature(self.program, _ALL).all_positions:
            return _ALL
        return None

    @cached_property
    def can_rewind(self) -> bool:
        """May tokens at the end of a cache be forgotten by going on at an earlier position?

        So it is where every buffer has a row for each position, or is a counter. States of recurrences and
        windows shorter than the cache hold sums of all tokens. Programs of ExecuTorch's tools name no
        buffers, so that nothing is known of them. The constant method `can_rewind` overrules.
        """
        stated = self.constants.get("can_rewind")
        if isinstance(stated, bool):
            return stated
        if not self.has_named_state and self.signature.positions != "none":
            return False
        return all(_has_rows(buffer, self.max_seq_len) for buffer in self.program.buffers(_METHOD))

    @cached_property
    def has_named_state(self) -> bool:
        """Can the cache be read and written, buffer by buffer? Else its copies are computed again."""
        return bool(self.program.buffers(_METHOD))

    @cached_property
    def fingerprint(self) -> str:
        """Tells this program from others: SHA-256 over samples of its files and their sizes."""
        digest = hashlib.sha256()
        for path in (self.program_path, *self.data_files):
            size = path.stat().st_size
            digest.update(f"{path.name}:{size};".encode())
            with path.open("rb") as file:
                for block in range(_BLOCKS):
                    file.seek(max(0, size - _BLOCK) * block // (_BLOCKS - 1))
                    digest.update(file.read(_BLOCK))
        return digest.hexdigest()


def damaged(file: str, what: str) -> ProgramError:
    """The error of a folder that cannot be used."""
    return ProgramError(f"language model: {file} cannot be used: {what}", hint=_REMEDY)


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file, empty where there is no file; ProgramError where it holds something else."""
    if not path.exists():
        return {}
    if path.stat().st_size > _MOST_BYTES:
        raise damaged(path.name, "it is too long")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise damaged(path.name, "it is no JSON") from None
    if not isinstance(found, dict):
        raise damaged(path.name, "it holds no object")
    return found


def _signature(program: pteron.Program, method: str) -> Signature:
    inputs, outputs = program.inputs(method), program.outputs(method)
    shapes = [tuple(spec.shape or ()) if spec.kind == "tensor" else None for spec in inputs]
    is_right = len(inputs) in (1, 2) and all(spec.dtype == "int64" for spec in inputs)
    if (
        not is_right
        or shapes[0] is None
        or len(shapes[0]) != 2
        or (len(shapes) == 2 and len(shapes[1] or ()) != 1)
    ):
        raise damaged(
            PROGRAM, f"{method} takes no input_ids int64[batch, tokens], cache_position int64[tokens]"
        )
    result = tuple(outputs[-1].shape or ()) if outputs and outputs[-1].kind == "tensor" else ()
    if len(result) not in (2, 3) or not isinstance(result[-1], int):
        raise damaged(PROGRAM, f"{method} gives no logits [batch, tokens, vocabulary]")
    tokens = shapes[0][1]
    if not isinstance(tokens, int) and 1 not in tokens:
        raise damaged(PROGRAM, f"{method} does not take one token")
    if isinstance(tokens, int) and tokens != 1:
        raise damaged(PROGRAM, f"{method} takes {tokens} tokens in every call; export the number as dynamic")
    chunk = tokens if isinstance(tokens, int) else tokens.max
    # ExecuTorch's exporter states extents from 0 up to the largest.
    rows = shapes[0][0]
    batch = rows if isinstance(rows, int) else 1 if 1 in rows else rows.min
    if len(shapes) == 1:
        positions = "none"
    else:
        positions = "start" if chunk > 1 and shapes[1] == (1,) else "vector"
    gives_all = len(result) == 3 and result[1] != 1
    return Signature(batch, chunk, result[-1], positions, gives_all)


def _constants(program: pteron.Program) -> Iterator[tuple[str, Any]]:
    for name in program.methods:
        outputs = program.outputs(name)
        if program.inputs(name) or not outputs or any(spec.kind == "tensor" for spec in outputs):
            continue
        if all(spec.value is not None for spec in outputs):
            is_list = len(outputs) > 1 or name.endswith("ids")
            values = [spec.value for spec in outputs]
            yield name, values if is_list else values[0]


def _ids(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(id_, int) and not isinstance(id_, bool) for id_ in values):
        raise damaged(PROGRAM, "tokens that begin or end a text are stated as something else than numbers")
    return values


def _has_rows(buffer: pteron.ValueSpec, length: int) -> bool:
    shape = tuple(buffer.shape or ())
    elements = 1
    for extent in shape:
        elements *= extent if isinstance(extent, int) else extent.max
    return elements <= 1 or (len(shape) >= 3 and length in shape[1:3])

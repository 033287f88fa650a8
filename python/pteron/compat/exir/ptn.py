"""`.ptn` files: the program of ExecuTorch's native format, and its constants by name.

An uncompressed zip of `program.ptg`, a FlatBuffer that is only carried here; `program.safetensors`, the
constants; and `aliases.json`, which names the stored key for each key whose tensor is stored under another
one. Nothing here runs such files; ExecuTorch's native runtime does.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch

from pteron.exir.serialize.file_layout import write_file

PTG_ENTRY = "program.ptg"
SAFETENSORS_ENTRY = "program.safetensors"
ALIASES_ENTRY = "aliases.json"
__all__ = ["ALIASES_ENTRY", "PTG_ENTRY", "SAFETENSORS_ENTRY", "read_ptn", "write_ptn"]

#: The key of safetensors that names no tensor.
_METADATA = "__metadata__"

_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "BOOL": "bool",
    "C64": "complex64",
}
_DTYPES: dict[str, torch.dtype] = {code: getattr(torch, name) for code, name in _NAMES.items()}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def write_ptn(
    path: str,
    ptg: bytes,
    constants: Mapping[str, torch.Tensor],
    mutable_keys: frozenset[str] = frozenset(),
) -> None:
    """Writes a `.ptn` file; readers see the old file or the whole new one.

    Args:
        path: where to. Folders that are missing are made.
        ptg: the program, as it is.
        constants: every tensor that it names. Equal ones (dtype, shape and bytes) are stored once.
        mutable_keys: tensors that the program updates. Each is stored for itself, whatever its bytes are.

    Raises:
        KeyError: safetensors has no element type for a constant.
        TypeError: a key is no string, or a value no tensor.
        ValueError: a mutable key has no tensor, or shares its memory with another key; or a key is reserved.
    """
    _check(constants, mutable_keys)
    owners, aliases = _owners(constants, mutable_keys)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as package:
            package.writestr(PTG_ENTRY, ptg)
            if owners:
                with package.open(SAFETENSORS_ENTRY, "w", force_zip64=True) as entry:
                    _write_tensors(entry, owners)
            if aliases:
                package.writestr(ALIASES_ENTRY, json.dumps(aliases, indent=2, sort_keys=True))

    write_file(target, "write_ptn: the file", write)


def read_ptn(path: str) -> tuple[bytes, dict[str, torch.Tensor]]:
    """The program and all constants of a `.ptn` file, those that are stored under another key too.

    Raises:
        ValueError: the file contradicts itself.
    """
    from safetensors.torch import load

    with zipfile.ZipFile(path) as package:
        entries = set(package.namelist())
        ptg = package.read(PTG_ENTRY)
        owners = load(package.read(SAFETENSORS_ENTRY)) if SAFETENSORS_ENTRY in entries else {}
        aliases = json.loads(package.read(ALIASES_ENTRY)) if ALIASES_ENTRY in entries else {}
    if not isinstance(aliases, dict):
        raise ValueError(
            f"read_ptn: {ALIASES_ENTRY} must contain a JSON object, got {type(aliases).__name__}"
        )
    constants = dict(owners)
    for key, owner in aliases.items():
        if not isinstance(owner, str):
            raise ValueError(f"read_ptn: alias {key!r}: every alias and owner name must be a string")
        if key == _METADATA:
            raise ValueError(f"read_ptn: alias key {key!r} is reserved by safetensors")
        if owner not in owners:
            raise ValueError(f"read_ptn: alias {key!r} names owner {owner!r}, which has no safetensors entry")
        if key in owners:
            raise ValueError(f"read_ptn: {key!r} is both a safetensors owner and an alias")
        constants[key] = owners[owner]
    return ptg, constants


def _check(constants: Mapping[Any, Any], mutable_keys: frozenset[str]) -> None:
    unknown = sorted(mutable_keys - set(constants))
    if unknown:
        raise ValueError(f"write_ptn: mutable_keys contains keys with no tensor data: {unknown}")
    keys_of_memory: dict[tuple[str, int], list[str]] = {}
    for key, tensor in constants.items():
        if not isinstance(key, str):
            raise TypeError(f"write_ptn: tensor data key must be str, got {type(key).__name__}")
        if key == _METADATA:
            raise ValueError(f"write_ptn: {key!r} is reserved by safetensors and cannot be a data key")
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"write_ptn: value for {key!r} must be a Tensor, got {type(tensor).__name__}")
        if tensor.dtype not in _CODES:
            raise KeyError(f"write_ptn: safetensors cannot represent dtype {tensor.dtype} of {key!r}")
        if tensor.numel():
            memory = (str(tensor.device), tensor.untyped_storage().data_ptr())
            keys_of_memory.setdefault(memory, []).append(key)
    for keys in keys_of_memory.values():
        if len(keys) > 1 and not mutable_keys.isdisjoint(keys):
            raise ValueError(
                "write_ptn: distinct data keys share source storage and at least one is mutable: "
                f"{sorted(keys)}. The file would hold each apart; use one key for one state"
            )


def _owners(
    constants: Mapping[str, torch.Tensor], mutable_keys: frozenset[str]
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """What is stored, by key, and for every other key the one that its tensor is stored under."""
    owners: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[tuple[torch.dtype, torch.Size, bytes], str] = {}
    for key in sorted(constants):
        tensor = constants[key].detach().cpu().contiguous()
        if key not in mutable_keys:
            owner = first.setdefault(
                (tensor.dtype, tensor.shape, hashlib.sha256(_bytes(tensor)).digest()), key
            )
            if owner != key:
                aliases[key] = owner
                continue
        owners[key] = tensor
    return owners, aliases


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The elements of a contiguous tensor where they lie; NumPy has no bfloat16, so as bytes."""
    elements: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(elements)


def _write_tensors(entry: IO[bytes], tensors: Mapping[str, torch.Tensor]) -> None:
    """safetensors: length of the header, the header padded to 8 bytes, then one tensor behind the other."""
    header, at = {}, 0
    for key, tensor in tensors.items():
        end = at + tensor.numel() * tensor.element_size()
        header[key] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    entry.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors.values():
        entry.write(_bytes(tensor))

"""`_flatc_compile` and `_flatc_decompile` without a compiler: the schema is read, and the files written,
here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pteron.compat.flatc.compile_json import compile_json
from pteron.compat.flatc.read_binary import read_binary
from pteron.compat.flatc.schema import SchemaError, read_schema


def _flatc_compile(output_dir: str, schema_path: str, json_path: str) -> None:
    """Writes the binary form of a JSON file into `output_dir`, under its name with the schema's file
    extension.

    Raises:
        SchemaError: the schema is not understood, or the data does not fit it.
    """
    schema = read_schema(schema_path)
    made = compile_json(schema, json.loads(Path(json_path).read_bytes()))
    (Path(output_dir) / f"{Path(json_path).stem}.{schema.extension}").write_bytes(made)


def _flatc_decompile(
    output_dir: str, schema_path: str, bin_path: str, flatc_additional_args: Sequence[str] | None = None
) -> None:
    """Writes the JSON form of a binary file into `output_dir`, every default spelled out.

    Raises:
        SchemaError: the data is damaged or of another schema, or an argument beside `--raw-binary` is given,
            which lets data without the schema's file identifier pass.
    """
    asked = set(flatc_additional_args or ())
    if asked - {"--raw-binary"}:
        raise SchemaError(f"arguments of flatc that are not known here: {sorted(asked - {'--raw-binary'})}")
    found = read_binary(
        read_schema(schema_path), Path(bin_path).read_bytes(), needs_identifier="--raw-binary" not in asked
    )
    text = json.dumps(_quoted(found), indent=2)
    (Path(output_dir) / f"{Path(bin_path).stem}.json").write_text(text)


def _insert_flatbuffer_header(flatbuffer_data: bytes, magic_regex: str, header_data: bytes) -> bytes:
    """A binary form with `header_data` behind its file identifier.

    Args:
        flatbuffer_data: the binary form.
        magic_regex: what the file identifier must match.
        header_data: as many bytes as keep the alignment of what follows.

    Raises:
        ValueError: the data has no such file identifier.
    """
    if len(flatbuffer_data) < 8:
        raise ValueError(f"Flatbuffer data length {len(flatbuffer_data)} < 8")
    identifier = flatbuffer_data[4:8].decode(errors="replace")
    if not re.match(magic_regex, identifier):
        raise ValueError(f"Flatbuffer data magic bytes {identifier!r} does not match pattern /{magic_regex}/")
    # The first number is where the root table begins, counted from there.
    root = int.from_bytes(flatbuffer_data[:4], "little") + len(header_data)
    return root.to_bytes(4, "little") + flatbuffer_data[4:8] + header_data + flatbuffer_data[8:]


def _replace_non_finite_in_json(content: bytes) -> bytes:
    """JSON with infinities and NaN as text, as compilers read it; the same object where there are none."""
    if b"Infinity" not in content and b"NaN" not in content:
        return content
    return json.dumps(_quoted(json.loads(content))).encode()


def _quoted(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    return value

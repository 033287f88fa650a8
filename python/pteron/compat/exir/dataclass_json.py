"""Dataclasses to the JSON that FlatBuffers compilers read, and back."""

from __future__ import annotations

import enum
import json
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from pteron.exir.schema import ScalarType


class _DataclassEncoder(json.JSONEncoder):
    """Dataclasses as objects, bytes as lists of numbers. A field whose annotation is the name of a union in
    quotes gets a second key, `<field>_type`, with the class of its value.
    """

    def default(self, o: Any) -> Any:
        if isinstance(o, (bytes, memoryview)):
            return list(o)
        if not is_dataclass(o) or isinstance(o, type):
            return super().default(o)
        hints = get_type_hints(type(o))
        members: dict[str, Any] = {}
        for field in fields(o):
            value = getattr(o, field.name)
            members[field.name] = value
            if isinstance(field.type, str) and _is_table_union(_without_none(hints[field.name])):
                members[f"{field.name}_type"] = type(value).__name__
        return members


def _json_to_dataclass(json_dict: Any, cls: Any = None) -> Any:
    """An object of the dataclass `cls` with the members of `json_dict`, and so on for what they hold.

    Raises:
        TypeError: a member that is not optional is missing.
    """
    if not is_dataclass(cls) or is_dataclass(json_dict):
        return json_dict
    hints = get_type_hints(cls)
    made: Any = cls
    return made(**{field.name: _member(json_dict, field, hints[field.name]) for field in fields(cls)})


def _member(members: dict[str, Any], field: Any, hint: Any) -> Any:
    name = field.name
    is_named_union = isinstance(field.type, str) and _is_union(hint) and not _is_optional(hint)
    if is_named_union and f"{name}_type" in members:
        (chosen,) = [each for each in get_args(hint) if each.__name__ == members[f"{name}_type"]]
        return _json_to_dataclass(members[name], chosen)
    if name not in members:
        if _is_optional(hint):
            return None
        if field.default is not MISSING:
            return field.default
        raise TypeError(
            f"Invalid Buffer. Received no value for field: {name}, but {name} : {hint} is not an Optional "
            "type."
        )
    return _value(members[name], _without_none(hint))


def _value(value: Any, hint: Any) -> Any:
    if value is None or hint is Any:
        return value
    if is_dataclass(hint):
        return _json_to_dataclass(value, hint)
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        return [_value(each, item) for each in value]
    if _is_union(hint):
        matching = [each for each in get_args(hint) if each is type(value)]
        return matching[0](value) if matching else value
    if isinstance(hint, enum.EnumMeta):
        return hint[value] if isinstance(value, str) else hint(value)
    if hint is int and isinstance(value, str):
        # Our classes state element types as numbers, and compilers write them by name.
        return ScalarType[value]
    if hint is bytes:
        return bytes(value)
    return hint(value)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _is_table_union(hint: Any) -> bool:
    return _is_union(hint) and any(is_dataclass(each) for each in get_args(hint))


def _is_optional(hint: Any) -> bool:
    return _is_union(hint) and type(None) in get_args(hint)


def _without_none(hint: Any) -> Any:
    if not _is_optional(hint):
        return hint
    rest = [each for each in get_args(hint) if each is not type(None)]
    return rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007 -- made at run time

"""Structures of inputs and outputs as a program file states them: tuples, lists and dicts."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
from torch.utils._pytree import SUPPORTED_NODES, TreeSpec, tree_structure, treespec_dumps

from pteron.errors import ExportError


def tree_text(spec: TreeSpec | None) -> str:
    """The JSON form of a structure; empty where there is none.

    The runtime knows no classes of a model's own, so a registered class becomes a dict of its named fields,
    or a tuple where its fields have no names (`torch.return_types.topk` and other named tuples among them).
    ExportError where a dict key is no string, number, truth value or None.
    """
    return "" if spec is None else treespec_dumps(tree_structure(_portable(spec)))


def _portable(spec: TreeSpec) -> Any:
    """A structure of plain tuples, lists and dicts with a 0 at each leaf."""
    if spec.is_leaf():
        return 0
    children = [_portable(child) for child in spec.children()]
    if spec.type is list:
        return children
    if isinstance(spec.type, type) and issubclass(spec.type, dict):
        return dict(zip(_dict_keys(spec), children, strict=True))
    # The registration of all named tuples is under the function that makes them.
    if spec.type is namedtuple or (isinstance(spec.type, type) and issubclass(spec.type, tuple)):
        return tuple(children)
    names = _field_names(spec)
    return tuple(children) if names is None else dict(zip(names, children, strict=True))


def _dict_keys(spec: TreeSpec) -> list[Any]:
    keys = _field_names(spec)
    if keys is None:
        raise ExportError(f"a {spec.type} in the inputs or outputs does not tell its keys; use a plain dict")
    for key in keys:
        if not isinstance(key, (str, int, float, bool, type(None))):
            raise ExportError(
                f"dict key {key!r} in the inputs or outputs cannot be stored",
                got=repr(key),
                expected="a string, number, truth value or None",
            )
    return keys


def _field_names(spec: TreeSpec) -> list[Any] | None:
    """Keys or attribute names of one level, from the class's own registration; None where it has no names."""
    registered = SUPPORTED_NODES.get(spec.type)
    if registered is None or registered.flatten_with_keys_fn is None:
        return None
    # Tensors, because a class may take nothing else for leaves (caches of transformers).
    sample = registered.unflatten_fn([torch.empty(0)] * len(spec.children()), spec.context)
    pairs, _ = registered.flatten_with_keys_fn(sample)
    names = [getattr(key, "key", getattr(key, "name", None)) for key, _ in pairs]
    return None if any(name is None for name in names) and not issubclass(spec.type, dict) else names

"""Weights and example inputs as bytes. Tensors without storage are written as what they state.

`_CURRENT_DESERIALIZER` has the deserializer whose fake mode such tensors get when they are read, innermost
last; `deserialize` puts one there.
"""

from __future__ import annotations

import copyreg
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._export.serde.schema import TensorMeta
from torch._export.serde.serialize import (
    EnumEncoder,
    GraphModuleDeserializer,
    SerializeError,
    _dataclass_to_dict,
    _dict_to_dataclass,
    serialize_tensor_meta,
)
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = [
    "GraphModuleDeserializer",
    "SerializeError",
    "deserialize_torch_artifact",
    "fake_tensors_allowed",
    "serialize_torch_artifact",
]

_CURRENT_DESERIALIZER: list[GraphModuleDeserializer] = []


@contextmanager
def fake_tensors_allowed() -> Iterator[None]:
    """Within it, tensors without storage can be read; all get one fake mode."""
    deserializer: Any = GraphModuleDeserializer()
    deserializer.fake_tensor_mode = FakeTensorMode(allow_non_fake_inputs=True)
    _CURRENT_DESERIALIZER.append(deserializer)
    try:
        yield
    finally:
        _CURRENT_DESERIALIZER.pop()


def _reduce_fake_tensor(fake: FakeTensor) -> Any:
    meta = json.dumps(_dataclass_to_dict(serialize_tensor_meta(fake)), cls=EnumEncoder)  # type: ignore[no-untyped-call]
    return _reconstruct_fake_tensor, (meta.encode(), isinstance(fake, torch.nn.Parameter))


def _reconstruct_fake_tensor(serialized_tensor_meta: bytes, is_parameter: bool) -> torch.Tensor:
    if not _CURRENT_DESERIALIZER:
        raise AssertionError("Need access to current deserializer state")
    meta = _dict_to_dataclass(TensorMeta, json.loads(serialized_tensor_meta))  # type: ignore[no-untyped-call]
    fake: torch.Tensor = _CURRENT_DESERIALIZER[-1].deserialize_tensor_meta(meta)
    if not is_parameter:
        return fake
    # Only these can have gradients; what the parameter itself said is not written.
    has_gradient = fake.dtype.is_floating_point or fake.dtype.is_complex
    return torch.nn.Parameter(fake, requires_grad=has_gradient)


def serialize_torch_artifact(artifact: Any) -> bytes:
    """A dict or tuple of tensors as bytes; None is no bytes."""
    if artifact is None:
        return b""
    before = copyreg.dispatch_table.get(FakeTensor)
    copyreg.pickle(FakeTensor, _reduce_fake_tensor)
    try:
        buffer = io.BytesIO()
        torch.save(artifact, buffer)
        return buffer.getvalue()
    finally:
        del copyreg.dispatch_table[FakeTensor]
        if before is not None:
            copyreg.dispatch_table[FakeTensor] = before


def deserialize_torch_artifact(serialized: Any) -> Any:
    """What `serialize_torch_artifact` wrote; what is no bytes already is given back.

    Only tensors and plain values are read: nothing in the bytes is run.
    """
    if isinstance(serialized, (dict, tuple)):
        return serialized
    if not serialized:
        return {}
    if _reconstruct_fake_tensor in torch.serialization.get_safe_globals():
        # Leaving `safe_globals` would take away what the caller allowed.
        return torch.load(io.BytesIO(serialized), weights_only=True)
    with torch.serialization.safe_globals([_reconstruct_fake_tensor]):
        return torch.load(io.BytesIO(serialized), weights_only=True)

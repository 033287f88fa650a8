"""ETDump files by the names of ExecuTorch's `devtools.etdump.serialize`."""

from __future__ import annotations

from enum import Enum

from pteron.devtools.etdump.flatbuffer import read_etdump, write_etdump
from pteron.devtools.etdump.schema import ETDump


class ValueType(Enum):
    """The kinds of a `Value`."""

    NULL = "Null"
    INT = "Int"
    BOOL = "Bool"
    FLOAT = "Float"
    DOUBLE = "Double"
    TENSOR = "Tensor"
    TENSOR_LIST = "TensorList"
    STRING = "String"


class PROFILE_EVENT_ENUM(Enum):  # noqa: N801 -- ExecuTorch's name
    """Names of spans that are not of one operator."""

    RUN_MODEL = "Method::execute"
    OPERATOR_CALL = "OPERATOR_CALL"
    DELEGATE_CALL = "DELEGATE_CALL"
    LOAD_MODEL = "Program::load_method"


def serialize_to_etdump_flatcc(etdump: ETDump) -> bytes:
    """The bytes of a file, without the length in front that runtimes write."""
    return write_etdump(etdump, size_prefixed=False)


def deserialize_from_etdump_flatcc(data: bytes, size_prefixed: bool = True) -> ETDump:
    """What a file says, whether its length stands in front or not.

    Raises:
        EtdumpError: the bytes are no ETDump file, or a damaged one.
    """
    return read_etdump(data)

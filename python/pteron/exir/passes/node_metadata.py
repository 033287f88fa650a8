"""What a pass may read and add about the node that it is given."""

from __future__ import annotations

from typing import Any

from pteron.errors import ExportError

# A pass that set them would make the graph say something about a node that its operator does not do.
_PROTECTED = frozenset({"val", "stack_trace", "nn_module_stack", "debug_handle", "tensor_meta"})


class ExportPassBaseError(ExportError, RuntimeError):
    """A pass asked for something that a traced value or a node does not allow."""


class NodeMetadata:
    """The `meta` of a node, copied. New keys can be set; those that tracing sets itself cannot."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = dict(data)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key in _PROTECTED:
            raise ExportPassBaseError(
                f"meta[{key!r}] is set by the pass machinery and cannot be set by a pass",
                argument=key,
                hint="use a key of your own",
            )
        self.data[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def copy(self) -> NodeMetadata:
        """A copy that can be changed by itself."""
        return NodeMetadata(self.data)

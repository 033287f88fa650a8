"""Where in the model's own source a graph node comes from."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import cache

import torch

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>[^\n]*)(?:\n    (?P<text>[^\n]*))?)?'
)
_TORCH_DIRECTORY = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
# The path that runs a lowered module is no part of the model either.
_MACHINERY = (_TORCH_DIRECTORY, os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)
#: The class that non-strict export puts around what it captures, of which nodes without a module are.
_EXPORTS_OWN_MODULE = "_aot_export_non_strict.<locals>.Wrapper"
#: So many nodes are looked at for a module, so that graphs without any stay linear.
_MOST_NEARBY = 64
_LAYERS_DIRECTORY = os.path.join(_TORCH_DIRECTORY, "nn", "modules") + os.sep


@dataclass(frozen=True)
class SourceLocation:
    """A module path inside the model and a line of Python.

    `module` is the attribute path ("encoder.layer.0", "" for the model itself) or None where export kept
    none; `file` is package-relative ("package/model.py", never absolute), `line` counts from 1; both None
    where unknown.
    """

    module: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file is not None else "unknown source line"
        return f"{place} (module {self.module})" if self.module else place


def root_class(node: torch.fx.Node) -> str | None:
    """The name of the class of the model that `node` was captured in, None where export kept none."""
    for path, kind in (node.meta.get("nn_module_stack") or {}).values():
        if path in ("", "L['self']"):
            # A class, or its qualified name after the graph was copied or read from a file.
            name = str(getattr(kind, "__qualname__", kind))
            return None if name.endswith(_EXPORTS_OWN_MODULE) else name.rpartition(".")[2]
    return None


def module_nearby(node: torch.fx.Node) -> str | None:
    """The module of the nearest node that has one: of those that read the values of `node`, else of those
    that it reads. A quantiser's nodes have none; what converts the input or the weight of a layer is a part
    of it.
    """
    for is_user in (True, False):
        seen, waiting = {node}, [node]
        for one in waiting:
            module = _module_of(one) or root_class(one)
            if module:
                return module
            fresh = [other for other in (one.users if is_user else one.all_input_nodes) if other not in seen]
            seen.update(fresh)
            waiting += fresh[: _MOST_NEARBY - len(waiting)]
    return None


@cache
def package_relative(path: str) -> str:
    """A source file's path below the directory that holds its top-level package, or below its `sys.path`
    entry.
    """
    path = os.path.abspath(path)
    directory, name = os.path.split(path)
    if os.path.exists(os.path.join(directory, "__init__.py")):
        while os.path.exists(os.path.join(directory, "__init__.py")):
            directory = os.path.dirname(directory)
        return os.path.relpath(path, directory).replace(os.sep, "/")
    roots = [os.path.abspath(entry or os.getcwd()) for entry in sys.path]
    holders = [root for root in roots if path.startswith(root + os.sep)]
    if holders:
        return os.path.relpath(path, max(holders, key=len)).replace(os.sep, "/")
    return name


def stack_frames(node: torch.fx.Node) -> list[tuple[str, int, str, str]]:
    """(file, line from 1, function, text of the line) of every frame of the model's code that export recorded
    on `node`, outermost first; files are package-relative.
    """
    return [
        (package_relative(match["file"]), int(match["line"]), match["name"] or "", match["text"] or "")
        for match in _FRAME.finditer(node.meta.get("stack_trace") or "")
        if not match["file"].startswith("<") and not _is_machinery(match["file"])
    ]


def _frame_of(stack_trace: str) -> tuple[str, int] | None:
    """The innermost frame of the model's code, else the innermost one in `torch.nn`: a layer that was
    exported by itself.
    """
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(stack_trace)]
    # Code that torch generated has no file.
    frames = [frame for frame in frames if not frame[0].startswith("<")]
    outside = [frame for frame in frames if not _is_machinery(frame[0])]
    layers = [frame for frame in frames if os.path.abspath(frame[0]).startswith(_LAYERS_DIRECTORY)]
    for found in (outside, layers):
        if found:
            return found[-1]
    return None


def _is_machinery(path: str) -> bool:
    # PyTorch gives nodes that it inserts itself a path that starts with its own package.
    return path.startswith("torch/") or os.path.abspath(path).startswith(_MACHINERY)


def _module_of(node: torch.fx.Node) -> str | None:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return None
    path = list(stack.values())[-1][0]
    if path.startswith("_empty_nn_module_stack"):
        return None
    # Strict export writes `L['self'].encoder.layer[0]`; non-strict export writes the attribute path itself.
    path = re.sub(r"^L\['self'\]\.?", "", path)
    path = re.sub(r"\._modules\['([^']+)'\]", r".\1", path)
    return re.sub(r"\[['\"]?([^\]'\"]+)['\"]?\]", r".\1", path).lstrip(".")


def source_location(node: torch.fx.Node) -> SourceLocation:
    """The source location that export recorded on `node`; its fields are None where nothing was recorded."""
    frame = _frame_of(node.meta.get("stack_trace") or "")
    module = _module_of(node)
    if frame is None:
        return SourceLocation(module=module)
    return SourceLocation(module=module, file=package_relative(frame[0]), line=frame[1])

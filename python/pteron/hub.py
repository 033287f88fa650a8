"""Folders as `transformers.exporters` saves them and pushes them to the Hub, without transformers and torch.

    model = pteron.hub.load("folder")
    model(input_ids=ids, attention_mask=mask)["last_hidden_state"]

Such a folder has `export.json`, one program for each component of the model, and the model's own
configuration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pteron
from pteron.errors import InputError, ProgramError

__all__ = ["Component", "HubModel", "load"]

MANIFEST = "export.json"
# The newest form of the manifest that is known here, and the formats whose files are programs.
_SCHEMA_VERSION = 1
_FORMATS = ("pteron", "executorch")
_MOST_LEVELS = 50
# Characters of a name from a file in a message.
_LONGEST = 80
_REMEDY = "copy the folder again, or export the model again with pteron.integrations.transformers"


@dataclass(frozen=True)
class _Structure:
    """A nest of values: a leaf, or named or numbered parts."""

    parts: tuple[_Structure, ...] = ()
    names: tuple[Any, ...] | None = None
    is_leaf: bool = False

    @property
    def num_leaves(self) -> int:
        """Values in it."""
        return 1 if self.is_leaf else sum(part.num_leaves for part in self.parts)

    def leaves(self, value: Any) -> Iterator[Any]:
        """The values of a nest in this order, by name where both have names; missing parts give none."""
        if self.is_leaf:
            yield value
        elif isinstance(value, Mapping):
            for name, part in zip(self.names or (), self.parts, strict=False):
                if name in value:
                    yield from part.leaves(value[name])
        elif isinstance(value, (tuple, list)):
            for part, each in zip(self.parts, value, strict=False):
                yield from part.leaves(each)

    def built(self, leaves: Iterator[Any]) -> Any:
        """The nest of these values: a dict of named parts, a tuple of others."""
        if self.is_leaf:
            return next(leaves)
        parts = [part.built(leaves) for part in self.parts]
        return tuple(parts) if self.names is None else dict(zip(self.names, parts, strict=True))


@dataclass(frozen=True)
class Component:
    """One program of a model: `component(input_ids=...)` gives its outputs.

    Attributes:
        name: such as "model", "prefill" or "decode".
        program: the program, loaded. `method`: its session.
        metadata: what the exporter wrote down: architecture, versions, settings, shapes of the example.
    """

    name: str
    program: pteron.Program
    method: pteron.Method
    metadata: Mapping[str, Any]
    _inputs: _Structure
    _outputs: _Structure
    _in_constants: Mapping[str, Any]
    _out_constants: Mapping[int, Any]

    @property
    def input_names(self) -> tuple[str, ...]:
        """The keywords that the component takes, those that are constants of the program left out."""
        return tuple(
            name for name, part in self._named_inputs() if part.num_leaves and name not in self._in_constants
        )

    def __call__(self, **inputs: Any) -> Any:
        """Runs the component. A cache is a tuple of arrays here: what an output gives is what an input takes.

        Outputs with names come as a dict, in NumPy, or in torch where the inputs are torch tensors. Keywords
        that the component was not exported with are left out, so that the whole result of a tokenizer may be
        given.

        Raises InputError where an input is missing or has another number of arrays; what `Method` raises.
        """
        given = {**self._in_constants, **inputs}
        flat: list[Any] = []
        for name, part in self._named_inputs():
            count = part.num_leaves
            values = list(part.leaves(given[name])) if name in given else []
            if len(values) != count:
                raise InputError(
                    f"component {_shown(self.name)}: input {_shown(name)} has another number of values "
                    "than the program",
                    expected=f"{count} values",
                    got=f"{len(values)} values" if name in given else "nothing",
                    hint=f"the component takes {', '.join(map(_shown, self.input_names[:_MOST_LEVELS]))}",
                )
            flat += values
        outputs = self.method.execute(flat)
        # In-place updates of inputs come before the outputs of the model.
        count, constants = self._outputs.num_leaves, self._out_constants
        results = iter(outputs[len(outputs) - (count - len(constants)) :])
        leaves = [constants[index] if index in constants else next(results) for index in range(count)]
        return self._outputs.built(iter(leaves))

    def _named_inputs(self) -> Iterator[tuple[str, _Structure]]:
        _, keywords = self._inputs.parts
        return zip(keywords.names or (), keywords.parts, strict=True)


@dataclass(frozen=True)
class HubModel:
    """The components of a folder by name, and the model's configuration.

    Attributes:
        components: name → component, in the order of the folder.
        config: `config.json` as a dict; empty where there is none.
        generation_config: `generation_config.json` as a dict; empty where there is none.
    """

    components: Mapping[str, Component]
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]

    def __getitem__(self, name: str) -> Component:
        """A component. KeyError for another name."""
        return self.components[name]

    def __call__(self, **inputs: Any) -> Any:
        """Runs the one component of a model that has one (`Component`); ValueError where it has several."""
        if len(self.components) != 1:
            raise ValueError(
                f"the model has several components ({', '.join(self.components)}): call one of them, "
                "model['name'](...)"
            )
        (component,) = self.components.values()
        return component(**inputs)


def load(folder: str | os.PathLike[str], *, num_threads: int | None = None) -> HubModel:
    """Load what `ExportedModel.save_pretrained` wrote in format "pteron" or "executorch".

    `folder`: a folder on this machine; `huggingface_hub.snapshot_download` gives one for a model on the Hub.
    `num_threads`: as in `Program.load_method`. Nothing of the folder is run but its programs.

    Raises FileNotFoundError where a file is missing; ProgramError where the manifest or a program is damaged,
    or is of a format that has other files than programs.
    """
    place = Path(folder)
    manifest = _json(place / MANIFEST)
    version = manifest.get("schema_version", 1)
    if not isinstance(version, int) or version > _SCHEMA_VERSION:
        raise _damaged(f"schema_version {_shown(version)}, and {_SCHEMA_VERSION} is the newest that is known")
    if manifest.get("export_format") not in _FORMATS:
        raise _damaged(f"export_format {_shown(manifest.get('export_format'))}, expected one of {_FORMATS}")
    entries = manifest.get("components")
    if not isinstance(entries, dict):
        raise _damaged("no components")
    components = {name: _component(place, name, entry, num_threads) for name, entry in entries.items()}
    return HubModel(components, _optional(place / "config.json"), _optional(place / "generation_config.json"))


def _component(place: Path, name: str, entry: Any, num_threads: int | None) -> Component:
    file = entry.get("file") if isinstance(entry, dict) else None
    metadata = entry.get("metadata") if isinstance(entry, dict) else None
    if not isinstance(file, str) or Path(file).name != file or not isinstance(metadata, dict):
        raise _damaged(f"component {_shown(name)} names no file of the folder")
    inputs, outputs = _structure(metadata.get("in_spec"), name), _structure(metadata.get("out_spec"), name)
    if len(inputs.parts) != 2 or inputs.parts[1].names is None:
        raise _damaged(f"component {_shown(name)} states no keywords")
    in_constants = metadata.get("in_constants") or {}
    if not isinstance(in_constants, dict):
        raise _damaged(f"component {_shown(name)} has in_constants that are no object")
    out_constants = _out_constants(metadata.get("out_constants") or [], outputs.num_leaves, name)
    program = pteron.load(place / file)
    method = program.load_method(num_threads=num_threads)
    if outputs.num_leaves - len(out_constants) > len(method.outputs):
        raise _damaged(f"component {_shown(name)} states more outputs than its program has")
    return Component(name, program, method, metadata, inputs, outputs, in_constants, out_constants)


def _out_constants(entries: Any, count: int, component: str) -> dict[int, Any]:
    """Values of outputs that are the same in every call, by their number; a manifest has them as pairs."""
    found = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        match entry:
            case [int(index), value] if 0 <= index < count and index not in found:
                found[index] = value
            case _:
                raise _damaged(
                    f"component {_shown(component)} has out_constants that its outputs do not have"
                )
    return found


def _structure(text: Any, component: str) -> _Structure:
    """A structure as `torch.utils._pytree.treespec_dumps` writes it."""
    try:
        _, spec = json.loads(text)
        return _node(spec, 0)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _damaged(f"component {_shown(component)} has a structure that cannot be read") from None


def _node(spec: Any, level: int) -> _Structure:
    if level > _MOST_LEVELS:
        raise ValueError("too many levels")
    if spec["type"] is None:
        return _Structure(is_leaf=True)
    parts = tuple(_node(part, level + 1) for part in spec["children_spec"])
    return _Structure(parts, _names(spec, len(parts)))


def _names(spec: Mapping[str, Any], count: int) -> tuple[Any, ...] | None:
    """Keys of a dict, fields of an output class; None for what has numbered parts, caches among them."""
    if spec["type"] in ("builtins.tuple", "builtins.list"):
        return None
    context = json.loads(spec["context"]) if isinstance(spec["context"], str) else spec["context"]
    is_named = isinstance(context, list) and len(context) == count
    return tuple(context) if is_named and all(isinstance(key, (str, int)) for key in context) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _optional(path: Path) -> Mapping[str, Any]:
    return _json(path) if path.exists() else {}


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ProgramError(f"hub: {path.name} is no JSON", hint=_REMEDY) from None
    if not isinstance(found, dict):
        raise ProgramError(f"hub: {path.name} holds no object", hint=_REMEDY)
    return found


def _damaged(what: str) -> ProgramError:
    return ProgramError(f"hub: the manifest cannot be used: {what}", hint=_REMEDY)

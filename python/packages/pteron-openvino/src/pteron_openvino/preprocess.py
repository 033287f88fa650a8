"""The compile half: subgraphs become OpenVINO IR, and their constants one block that all of them read."""

from __future__ import annotations

import hashlib
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import openvino as ov
import torch
from torch.export.exported_program import ExportedProgram

from pteron.exir.backend.backend_details import BackendDetails, PreprocessResult
from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.delegate_mapping_builder import DelegateMappingBuilder
from pteron.exir.backend.named_data_store import NamedDataStore
from pteron_openvino.blob import BACKEND, Head, State, written
from pteron_openvino.convert import Subgraph, subgraph_of, to_openvino
from pteron_openvino.settings import settings_of

_ALIGNMENT = 64


class PteronOpenvinoBackend(BackendDetails):
    """Compiles partitions for OpenVINO. Those that are compiled together share their constants."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """One partition by itself."""
        (result,) = _preprocessed([(edge_program, compile_specs)])
        return result

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """All partitions of all methods: a constant that several read is in the file once."""
        flat = [
            (program, specs)
            for method, programs in edge_programs.items()
            for program, specs in zip(programs, compile_specs[method], strict=True)
        ]
        results = iter(_preprocessed(flat))
        return {method: [next(results) for _ in programs] for method, programs in edge_programs.items()}


assert PteronOpenvinoBackend.__name__ == BACKEND


def _preprocessed(programs: list[tuple[ExportedProgram, list[CompileSpec]]]) -> list[PreprocessResult]:
    block = _Block()
    compiled = []
    for program, specs in programs:
        settings_of({spec.key: bytes(spec.value) for spec in specs}, {})  # refused now, not at load
        subgraph = subgraph_of(program)
        compiled.append((subgraph, block.with_its_constants(*_serialized(to_openvino(subgraph)))))
    return [_result(subgraph, model, block) for subgraph, model in compiled]


def _result(subgraph: Subgraph, model: bytes, block: _Block) -> PreprocessResult:
    store = NamedDataStore()
    if block.content:
        store.add_named_data(block.key, bytes(block.content), alignment=_ALIGNMENT)
    states = []
    for name, tensor in subgraph.states.items():
        content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        key = f"openvino/state/{hashlib.sha256(content).hexdigest()}"
        store.add_named_data(key, content, alignment=_ALIGNMENT)
        states.append(State(name, _name(tensor), tuple(tensor.shape), key))
    head = Head(
        library=ov.__version__,
        weights=block.key if block.content else None,
        weights_size=len(block.content),
        states=tuple(states),
        inputs=tuple(_name(value) for value in subgraph.inputs),
        outputs=tuple(_name(value) for value in subgraph.outputs),
    )
    builder = DelegateMappingBuilder()
    for name, handle in subgraph.debug_handles.items():
        builder.insert_delegate_mapping_entry(handles=handle, identifier=name)
    return PreprocessResult(
        written(head, model), builder.get_delegate_mapping(), store.get_named_data_store_output()
    )


def _name(value: object) -> str:
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else "int64"


def _serialized(model: ov.Model) -> tuple[bytes, bytes]:
    """XML and constants of a model. Names count from zero: OpenVINO numbers nodes through the process."""
    for at, node in enumerate(model.get_ordered_ops()):
        name = node.get_friendly_name()
        if "/" not in name and not name.startswith(("input", "output")):
            node.set_friendly_name(f"{node.get_type_name()}_{at}")
    model.set_friendly_name("pteron")
    with tempfile.TemporaryDirectory() as folder:
        text, constants = Path(folder) / "model.xml", Path(folder) / "model.bin"
        ov.serialize(model, text, constants)
        return text.read_bytes(), constants.read_bytes()


class _Block:
    """Constants of several models behind each other, equal ones once."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._places: dict[bytes, int] = {}

    @property
    def key(self) -> str:
        """Named after the bytes, so that it means the same in every program."""
        return f"openvino/weights/{hashlib.sha256(self.content).hexdigest()}"

    def with_its_constants(self, model: bytes, constants: bytes) -> bytes:
        """Adds the constants; the model that reads them from here."""
        tree = ElementTree.fromstring(model)
        for data in tree.iterfind(".//layer[@type='Const']/data"):
            start, size = int(data.attrib["offset"]), int(data.attrib["size"])
            data.attrib["offset"] = str(self._place(constants[start : start + size]))
        text: bytes = ElementTree.tostring(tree, encoding="utf-8")
        return text

    def _place(self, content: bytes) -> int:
        digest = hashlib.sha256(content).digest()
        if digest not in self._places:
            self.content.extend(bytes(-len(self.content) % _ALIGNMENT))
            self._places[digest] = len(self.content)
            self.content.extend(content)
        return self._places[digest]

"""pteron as a backend of `transformers.exporters`: importing this module registers it as "pteron".

    import pteron.integrations.transformers
    from pteron.integrations.transformers import PteronConfig, PteronExporter

    exported = PteronExporter().export(model, inputs, PteronConfig(dynamic=True))
    exported.save_pretrained("folder")

`ExportedModel.from_pretrained` then finds the runner, and `pteron.hub.load` runs the folder without torch and
transformers. transformers calls its exporters experimental: what touches its interface is in this file.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import _pytree as fx_pytree
from transformers.exporters.auto import register_backend
from transformers.exporters.configs import DynamoConfig
from transformers.exporters.exporter_dynamo import DynamoExporter
from transformers.exporters.metadata import ExportMetadata, load_treespec
from transformers.exporters.runners.base import ModelRunner

import pteron
from pteron.exir import ExecutorchBackendConfig, ExecutorchProgramManager, to_edge_transform_and_lower
from pteron.exir.export.dimension_limits import with_limits

__all__ = ["LoadedProgram", "PteronConfig", "PteronExporter", "PteronRunner"]

_FORMAT = "pteron"
_log = logging.getLogger(__name__)


@dataclass
class PteronConfig(DynamoConfig):
    """Settings of an export, beside those of `torch.export`.

    Attributes:
        default_max: the largest extent of dynamic dimensions that have none, for which memory is planned.
            None: four times the example's extent, at least 32. The log names every such dimension.
        packed_weights: store weights as this engine reads them, too, so that load packs nothing.
        kernels: what the target can run, as in `ExecutorchBackendConfig`: "pteron" or "executorch-portable".
    """

    export_format: str = _FORMAT  # type: ignore[assignment]
    default_max: int | None = None
    packed_weights: bool = False
    kernels: str = "pteron"


@dataclass(frozen=True)
class LoadedProgram:
    """A component as it was read back: its file, which saving copies, and the program."""

    path: Path
    program: pteron.Program


class PteronExporter(DynamoExporter):
    """A `PreTrainedModel` to one program (`export`), or one per stage (`export_for_generation`)."""

    export_format = _FORMAT  # type: ignore[assignment]
    config_class = PteronConfig
    program_suffix = ".pte"
    required_packages = ["torch", "pteron"]  # noqa: RUF012 -- a list in the base class
    tested_versions = {"torch": "2.13.0"}  # noqa: RUF012 -- a dict in the base class

    def export_program(
        self, model: Any, sample_inputs: MutableMapping[str, Any], config: Any
    ) -> tuple[Any, ExportMetadata]:
        """One graph: captured by transformers, lowered by pteron.

        `sample_inputs`: what the model's forward takes. Raises `pteron.ExportError` and its children.
        """
        captured, metadata = super().export_program(model, sample_inputs, config)
        limited, extents = with_limits(captured, config.default_max)
        chosen = [str(extent) for extent in extents if extent.is_default]
        if chosen:
            _log.warning("%s: %s", type(model).__name__, "; ".join(chosen))
        program = to_edge_transform_and_lower(limited).to_executorch(
            ExecutorchBackendConfig(kernels=config.kernels, packed_weights=config.packed_weights)
        )
        return program, metadata

    @classmethod
    def save_program(cls, program: Any, path: str | Path) -> None:
        """Write a component. OSError where the file cannot be written."""
        if isinstance(program, LoadedProgram):
            shutil.copyfile(program.path, path)
        else:
            program.save(path)

    @classmethod
    def load_program(cls, path: str | Path) -> Any:
        """Read a component back, mapped. `pteron.ProgramError` for a file that is no program."""
        return LoadedProgram(Path(path), pteron.load(path))


class PteronRunner(ModelRunner):
    """Runs one component: keywords in, the model's own output class out."""

    def __init__(self, method: pteron.Method, metadata: ExportMetadata) -> None:
        super().__init__(metadata)
        self.method = method
        self.in_spec = load_treespec(metadata.in_spec or "")

    @property
    def device(self) -> torch.device:
        """The processor."""
        return torch.device("cpu")

    @classmethod
    def from_program(
        cls,
        program: ExecutorchProgramManager | LoadedProgram,
        metadata: ExportMetadata,
        device: Any = None,
        num_threads: int | None = None,
    ) -> PteronRunner:
        """A session of the component. `num_threads`: as in `Program.load_method`.

        ValueError for another device than the processor.
        """
        if device is not None and torch.device(device).type != "cpu":
            raise ValueError(f"pteron runs on the processor, not on {device}: leave device out")
        loaded = program.program if isinstance(program, LoadedProgram) else pteron.load(program.buffer)
        return cls(loaded.load_method(num_threads=num_threads), metadata)

    def __call__(self, share_inputs: bool = True, share_outputs: bool = False, **kwargs: Any) -> Any:
        """The model's outputs. Inputs are read in place in any case; with `share_outputs` the outputs stay in
        the session's memory, and the next call raises `OutputsInUseError` while they are alive.
        """
        given = ((), {**self.metadata.in_constants, **kwargs})
        leaves = fx_pytree.tree_flatten_spec(given, self.in_spec)
        inputs = [leaf.detach().contiguous() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        outputs = self.method.execute(inputs, copy=not share_outputs)
        return self.unflatten([_as_tensor(value) for value in outputs])


def _as_tensor(value: Any) -> Any:
    return torch.utils.dlpack.from_dlpack(value) if isinstance(value, pteron.Tensor) else value


register_backend(PteronExporter, PteronRunner)

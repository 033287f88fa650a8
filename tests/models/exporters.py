"""The two exporters whose programs are loaded here: ours and the peer's."""

from __future__ import annotations

import warnings

import pytest
from torch.export import ExportedProgram

from pteron.exir import to_edge


def exported_here(exported: ExportedProgram) -> bytes:
    """The file that `pteron` writes."""
    return to_edge(exported).to_executorch().buffer


def exported_by_the_peer(exported: ExportedProgram) -> bytes:
    """The file that ExecuTorch writes."""
    exir = pytest.importorskip("executorch.exir")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Positions are computed where masks are made, which the peer's verifier does not know as core.
        config = exir.EdgeCompileConfig(_check_ir_validity=False)
        return bytes(exir.to_edge(exported, compile_config=config).to_executorch().buffer)


BY_NAME = {"pteron": exported_here, "executorch": exported_by_the_peer}
EXPORTERS = [
    pytest.param(name, export, id=name, marks=[pytest.mark.peer] if name == "executorch" else [])
    for name, export in BY_NAME.items()
]
"""Parameters `exporter`, its name, and `export`."""

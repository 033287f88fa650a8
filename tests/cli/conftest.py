"""A program of a small network, and a command that runs in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pteron.cli import main
from pteron.exir import to_edge
from tests.support.ceiling_cache import ceiling_cache as ceiling_cache  # a fixture


class Network(nn.Module):
    """Two modules with names, so that profiles have something to group by."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        self.head = nn.Linear(8 * 6 * 6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(x).flatten(1)).softmax(-1)


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network's program."""
    torch.manual_seed(0)
    inputs = (torch.randn(1, 3, 8, 8),)
    path = tmp_path_factory.mktemp("cli") / "model.pte"
    path.write_bytes(to_edge(torch.export.export(Network().eval(), inputs)).to_executorch().buffer)
    return path


@dataclass
class Done:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


class Command:
    """Runs `pteron` with arguments."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Done:
        self._capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as e:
            code = int(e.code or 0)
        text = self._capsys.readouterr()
        return Done(code, text.out, text.err)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line."""
    return Command(capsys)

"""Run passes over a small model, and compare what the program computes with eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import export
from torch.utils._pytree import tree_leaves

import pteron
from pteron.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge
from pteron.exir.passes import ExportedProgramPassBase
from tests.exir.small_models import Function, targets


class PassCase:
    """A model in the edge dialect, and the same after passes; both can be run."""

    def __init__(
        self,
        model: nn.Module | Callable[..., Any],
        args: tuple[Any, ...],
        *passes: ExportedProgramPassBase,
        dynamic_shapes: Any = None,
    ) -> None:
        torch.manual_seed(0)
        self.model = (model if isinstance(model, nn.Module) else Function(model)).eval()
        self.args = args
        self.passes = passes
        # Function takes its arguments as *args.
        shapes = (
            (tuple(dynamic_shapes),)
            if dynamic_shapes is not None and isinstance(self.model, Function)
            else dynamic_shapes
        )
        initial = copy.deepcopy(self.model)
        self.before: EdgeProgramManager = to_edge(export(initial, args, dynamic_shapes=shapes))
        # `transform` verifies the edge rules afterwards.
        self.after: EdgeProgramManager = self.before.transform(list(passes))

    @property
    def calls_before(self) -> list[str]:
        return targets(self.before.exported_program())

    @property
    def calls(self) -> list[str]:
        return targets(self.after.exported_program())

    def check(self, *more: tuple[Any, ...], rtol: float = 1e-5) -> PassCase:
        """Compare the program after the passes with eager mode, for the example inputs and for `more`.

        The passes run once in `transform` and once where `to_executorch` runs them, after write-backs.
        """
        methods = [
            pteron.load(manager.to_executorch(config).buffer).load_method("forward")
            for manager, config in (
                (self.after, ExecutorchBackendConfig(optimize=False)),
                (self.before, ExecutorchBackendConfig(optimize=self.passes)),
            )
        ]
        with torch.no_grad():
            for args in (self.args, *more):
                expected = tree_leaves(self.model(*copy.deepcopy(args)))
                for method in methods:
                    got = method(*(a.numpy() if isinstance(a, torch.Tensor) else a for a in args))
                    _compare(tree_leaves(got), expected, rtol)
        return self


def _compare(got: list[Any], expected: list[Any], rtol: float) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        want = other.numpy() if isinstance(other, torch.Tensor) else other
        largest = float(np.abs(want[np.isfinite(want)]).max(initial=0)) if np.size(want) else 0.0
        assert np.shape(one) == np.shape(want)
        np.testing.assert_allclose(one, want, rtol=0, atol=rtol * largest)

"""Lists of passes that run together, called as ExecuTorch's are."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.passes.infra import pass_manager as fx
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import tree_leaves

from pteron.errors import ExportError
from pteron.exir.edge.source_location import source_location
from pteron.exir.passes.exported_program_pass import ExportedProgramPassBase, ExportedProgramPassResult
from pteron.exir.passes.run_graph_passes import GraphPass, run_in_place, working_copy

__all__ = ["ExportedProgramPassManager", "PassManager", "PassType"]

PassType = GraphPass
"""A pass over a `GraphModule`, which returns a `PassResult` or None, or one over an `ExportedProgram`."""

Constraint = Callable[[Callable[..., Any], Callable[..., Any]], bool]


class PassManager(fx.PassManager):
    """Passes over a `GraphModule`, run in order: `PassManager(passes)(graph_module)` is a `PassResult`.

    `passes`: a list, or a list of lists. A pass that returns None changed the module in place. They run
    `steps` times, or until none of them changes anything. The graph is checked before the first pass, and
    after each one with `run_checks_after_each_pass`. The module that is given may be changed.
    """

    def __init__(
        self,
        passes: Sequence[Any] | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
        steps: int = 1,
    ) -> None:
        listed = _flat(passes, "PassManager(passes=...)")
        for each in listed:
            if isinstance(each, ExportedProgramPassBase):
                raise TypeError(
                    f"PassManager: {each!r} is a pass over an ExportedProgram, and a GraphModule has no "
                    "constants and signature; use ExportedProgramPassManager"
                )
        super().__init__(
            [fx.pass_result_wrapper(each) for each in listed],
            run_checks_after_each_pass=run_checks_after_each_pass,
            suppress_check_failures=suppress_check_failures,
            steps=steps,
        )

    def check(self, module: torch.nn.Module) -> None:
        """Refuse what is no graph, is not well formed or calls methods by name."""
        if not isinstance(module, torch.fx.GraphModule):
            raise TypeError(f"PassManager: expected a GraphModule, got {type(module).__name__}")
        _check_graph(module)


class ExportedProgramPassManager(fx.PassManager):
    """Passes over a `GraphModule` or over an `ExportedProgram`, run in order over a program.

    `constraints`: functions of two passes that say whether the first must come before the second. The other
    arguments are those of `PassManager`.
    """

    def __init__(
        self,
        passes: Sequence[Any] | None = None,
        constraints: list[Constraint] | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
        steps: int = 1,
    ) -> None:
        super().__init__(
            _flat(passes, "ExportedProgramPassManager(passes=...)"),
            constraints=constraints,
            run_checks_after_each_pass=run_checks_after_each_pass,
            suppress_check_failures=suppress_check_failures,
            steps=steps,
        )

    def check(self, module: Any) -> None:
        """Refuse a program whose graph is not well formed, or that its own verifier refuses."""
        _check_graph(module.graph_module)
        module.validate()

    def __call__(  # type: ignore[override]
        self, exported_program: ExportedProgram, override_verifiers: list[Any] | None = None
    ) -> ExportedProgramPassResult:
        """The program after all passes; the one that is given keeps its graph and its signature.

        While they run, the program that is given is the one they work on: a pass may hold it, and write to
        its constants, its state dict and its signature. What they put into the state dict and the constants
        is there afterwards too, as in ExecuTorch, where both programs have one state: vendors' code takes
        the graph of the result and reads its constants from the program that it gave.

        `override_verifiers`: classes that check it instead of its own, for passes into another dialect.
        """
        if not isinstance(exported_program, ExportedProgram):
            raise TypeError(
                "ExportedProgramPassManager: expected an ExportedProgram, got "
                f"{type(exported_program).__name__}"
            )
        if not self._validated:
            self.solve_constraints()
        with working_copy(exported_program):
            if override_verifiers:
                exported_program._verifiers = override_verifiers
            is_modified = self._run_all(exported_program)
            result = copy.copy(exported_program)
        exported_program.state_dict.update(result.state_dict)
        exported_program.constants.update(result.constants)
        return ExportedProgramPassResult(result, is_modified)

    def _run_all(self, program: ExportedProgram) -> bool:
        self.check(program)
        is_modified = False
        for _ in range(self.steps):
            changed_now = False
            for each in self.passes:
                changed_now |= self._run(each, program)
            is_modified |= changed_now
            if not changed_now:
                break
        return is_modified

    def _run(self, each: GraphPass, program: ExportedProgram) -> bool:
        recorded = _Recorded(each)
        try:
            run_in_place(program, [recorded.as_pass()])
            if self.run_checks_after_each_pass:
                self.check(program)
        except Exception as error:
            error.add_note(f"raised by or after the pass {_name(each)}")
            raise
        return recorded.changed


class _Recorded:
    """A pass, and whether it changed anything when it ran."""

    def __init__(self, each: GraphPass) -> None:
        self._each = each
        self.changed = False

    def as_pass(self) -> GraphPass:
        return _Program(self) if isinstance(self._each, ExportedProgramPassBase) else self._over_module

    def _over_module(self, module: torch.fx.GraphModule) -> PassResult | None:
        result: Any = self._each(module)  # type: ignore[arg-type]
        self.changed = result is None or bool(result.modified)
        return result  # type: ignore[no-any-return]

    def over_program(self, program: ExportedProgram) -> ExportedProgramPassResult:
        result: Any = self._each(program)  # type: ignore[arg-type]
        self.changed = bool(result.modified)
        return result  # type: ignore[no-any-return]


class _Program(ExportedProgramPassBase):
    def __init__(self, recorded: _Recorded) -> None:
        self._recorded = recorded

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        return self._recorded.over_program(exported_program)


def _flat(passes: Sequence[Any] | None, where: str) -> list[Any]:
    listed = [] if passes is None else tree_leaves(passes)
    for each in listed:
        if not callable(each):
            raise TypeError(f"{where}: expected passes, got {type(each).__name__} {each!r}")
    return listed


def _name(each: Any) -> str:
    return str(getattr(each, "__name__", type(each).__name__))


def _check_graph(module: torch.fx.GraphModule) -> None:
    module.recompile()
    module.graph.lint()
    for node in module.graph.nodes:
        if node.op == "call_method":
            raise ExportError(
                f"call_method {node.target!r} at node {node.name}: methods called by name are not supported",
                operator=str(node.target),
                source_line=str(source_location(node)),
                hint="call a PyTorch operator, such as torch.ops.aten.view.default",
            )

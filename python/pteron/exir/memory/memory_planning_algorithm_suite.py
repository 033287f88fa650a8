"""Several planning algorithms as one."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.errors import ExportError
from pteron.exir.memory.lifetime import Lifetime
from pteron.exir.memory.planning_algorithm import PlanningAlgorithm, require_algorithm
from pteron.exir.memory.search import search


class MemoryPlanningAlgorithmSuite:
    """Runs every algorithm of a list and takes the plan that needs least memory; of equal ones the first.

    Called like an algorithm: (lifetimes, alignment) → (offsets, total size), in bytes. Raises `ExportError`
    for an empty list and for what cannot be called that way.
    """

    def __init__(self, algo_list: Sequence[PlanningAlgorithm] | None = None) -> None:
        given = [search] if algo_list is None else list(algo_list)
        if not given:
            raise ExportError("MemoryPlanningAlgorithmSuite: the list of algorithms is empty")
        where = "MemoryPlanningAlgorithmSuite(algo_list=...)"
        self.algo_list: list[PlanningAlgorithm] = [require_algorithm(each, where) for each in given]

    def __call__(self, lifetimes: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
        return min(
            (algorithm(lifetimes, alignment) for algorithm in self.algo_list), key=lambda plan: plan[1]
        )

"""Graph passes: one per file, in the order that `pass_order` lists."""

from __future__ import annotations

from pteron.exir.memory.memory_planning_pass import MemoryPlanningPass
from pteron.exir.passes.spec_prop_pass import SpecPropPass

__all__ = ["MemoryPlanningPass", "SpecPropPass"]

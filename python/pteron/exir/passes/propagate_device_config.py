"""Which copies at the border of a method are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class PropagateDeviceConfig:
    """What `PropagateDevicePass` leaves to the caller of a method; each a bool, or a dict of bools by method.

    `skip_h2d_for_method_inputs`: inputs that one delegate alone reads are not copied to its device: the
    caller gives them there. `skip_d2h_for_method_outputs`: results of a delegate that the method returns, and
    nothing else reads, are not copied to the host.

    A runtime copies what the caller gives into memory that the file plans, so a copy is saved only where the
    file plans none: `MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)`.
    """

    skip_h2d_for_method_inputs: bool | Mapping[str, bool] = False
    skip_d2h_for_method_outputs: bool | Mapping[str, bool] = False

    def __hash__(self) -> int:
        return hash((str(self.skip_h2d_for_method_inputs), str(self.skip_d2h_for_method_outputs)))

    def of_method(self, method: str) -> tuple[bool, bool]:
        """The two settings for one method; False where a dict does not name it."""
        given = (self.skip_h2d_for_method_inputs, self.skip_d2h_for_method_outputs)
        h2d, d2h = (bool(each.get(method, False) if isinstance(each, Mapping) else each) for each in given)
        return h2d, d2h

"""Everything to one backend."""

from __future__ import annotations

from pteron.exir.backend.compile_spec import CompileSpec
from pteron.exir.backend.partitioner import DelegationSpec, WholeGraphPartitioner


class AllNodePartitioner(WholeGraphPartitioner):
    """Sends every node to `backend_id`, without asking whether it can take them."""

    def __init__(self, backend_id: str, compile_specs: list[CompileSpec]) -> None:
        super().__init__(DelegationSpec(backend_id, compile_specs))

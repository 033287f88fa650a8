"""How a backend says which edge nodes each of its own steps stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from pteron.exir.edge.debug_handles import stated_handles


class DelegateMappingError(ValueError):
    """An entry of a delegate mapping was refused."""


class DelegateMappingBuilder:
    """Collects the table from delegate debug id to debug handles.

    Several nodes may share one id (fused into one step) and several ids one node (split into steps). The
    backend must report the same ids at run time.

    Args:
        generated_identifiers: make the ids 0, 1, 2, ... in order of insertion; otherwise the caller brings
            its own int or str ids.
    """

    def __init__(self, generated_identifiers: bool = False) -> None:
        self._is_generating = generated_identifiers
        self._handles: dict[int | str, tuple[int, ...]] = {}

    def insert_delegate_mapping_entry(
        self,
        nodes: torch.fx.Node | Iterable[torch.fx.Node] | None = None,
        handles: int | Sequence[int | None] | None = None,
        identifier: int | str | None = None,
    ) -> int | str:
        """Adds an entry and returns its id.

        Args:
            nodes: one node or several; their debug handles count, nodes without one are passed over.
            handles: one debug handle or several, instead of nodes; None among them is passed over.
            identifier: the id, required unless ids are generated.

        Raises:
            DelegateMappingError: the id is known, is missing, or is given although ids are generated; both or
                neither of nodes and handles are given; or no handle is left.
        """
        if self._is_generating and identifier is not None:
            raise DelegateMappingError(
                f"Builders using generated identifiers can't manually add identifiers: {identifier!r}; leave "
                "it out"
            )
        if not self._is_generating and identifier is None:
            raise DelegateMappingError(
                "No identifier provided. Give one, or make the builder with generated_identifiers=True"
            )
        if identifier is not None and identifier in self._handles:
            raise DelegateMappingError(
                f"Duplicate delegate debug identifiers are not allowed: {identifier!r} was already inserted"
            )
        if (nodes is None) == (handles is None):
            given = "neither was" if nodes is None else "both were"
            raise DelegateMappingError(f"Only one of nodes or handles must be provided; {given} given")
        found = _handles_of(nodes) if nodes is not None else _as_handles(handles)
        if not found:
            raise DelegateMappingError(
                "No valid debug handles found: an entry stands for at least one node that has a debug handle"
            )
        chosen = len(self._handles) if identifier is None else identifier
        self._handles[chosen] = tuple(sorted(found))
        return chosen

    def get_delegate_mapping(self) -> dict[int | str, tuple[int, ...]]:
        """Id to the sorted debug handles it stands for."""
        return dict(self._handles)


def _handles_of(nodes: torch.fx.Node | Iterable[torch.fx.Node]) -> set[int]:
    listed = [nodes] if isinstance(nodes, torch.fx.Node) else list(nodes)
    return {handle for node in listed for handle in stated_handles(node)}


def _as_handles(handles: int | Sequence[int | None] | None) -> set[int]:
    listed = [handles] if handles is None or isinstance(handles, int) else list(handles)
    return {handle for handle in listed if handle is not None}

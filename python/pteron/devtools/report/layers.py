"""A method as a graph of nodes: the file's instructions, or the steps that load makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.devtools.description import MethodDescription
from pteron.devtools.flops import flops
from pteron.devtools.lifetimes import Access, Flow, call_accesses, flow_of, step_accesses
from pteron.devtools.sources import Source, Sources
from pteron.devtools.step_profile import StepProfile


@dataclass(frozen=True)
class Node:
    """One instruction or step. `instructions` are those of the file that it stands for."""

    name: str
    operator: str
    source: Source
    backend: str
    flops: int
    nbytes: int
    instructions: tuple[int, ...]
    access: Access


@dataclass(frozen=True)
class Layer:
    """Nodes, and what flows between them."""

    method: MethodDescription
    nodes: tuple[Node, ...]
    flow: Flow


def file_layer(method: MethodDescription, sources: Sources) -> Layer:
    """The instructions of the file, each at its own index."""
    accesses = call_accesses(method)
    nodes = []
    for call, access in zip(method.calls, accesses, strict=True):
        backend = method.delegates[call.delegate]["backend"] if call.delegate is not None else ""
        name = call.operator or backend or call.kind
        moved = () if call.jump is not None else (*access.reads, *access.writes)
        nodes.append(
            Node(
                name=name,
                operator=name,
                source=sources.at(call.index),
                backend=backend,
                flops=flops(method, call),
                nbytes=sum(tensor.nbytes for tensor in moved),
                instructions=(call.index,),
                access=access,
            )
        )
    return Layer(method, tuple(nodes), flow_of(method, accesses))


def plan_layer(plan: MethodDescription, steps: Sequence[StepProfile]) -> Layer:
    """The steps of a plan."""
    accesses = step_accesses(plan)
    nodes = tuple(
        Node(
            name=one.step.name,
            operator=one.operator,
            source=one.source,
            backend=one.backend,
            flops=one.flops,
            nbytes=one.nbytes,
            instructions=one.step.instructions,
            access=access,
        )
        for one, access in zip(steps, accesses, strict=True)
    )
    return Layer(plan, nodes, flow_of(plan, accesses))

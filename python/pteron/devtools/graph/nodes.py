"""Nodes and edges of a method, with the modules that they come from; delegates are graphs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pteron._native import Program
from pteron.devtools.description import Call, MethodDescription, Step, TensorValue, describe, describe_plan
from pteron.devtools.lifetimes import results_last
from pteron.devtools.program_file import read_program
from pteron.devtools.sources import Source, Sources
from pteron.devtools.writers import Writers
from pteron.errors import PteronError


@dataclass(frozen=True)
class Edge:
    """A tensor from the node that wrote it last, as its result `number`; `text` is its dtype and shape."""

    source: str
    number: int
    value: int
    text: str


@dataclass
class Node:
    """An input, an output, an instruction of the file or a step of the plan.

    `kind` is one of `KINDS`. `module` is a path with points, empty where it is not known; `loop` names the
    loop or branch that the node is in. `results` are values with their texts. `target` is the node where a
    jump goes on, `inner` the graph of a delegate.
    """

    id: str
    kind: str
    label: str
    module: str = ""
    loop: str = ""
    edges: list[Edge] = field(default_factory=list)
    results: list[tuple[int, str]] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    target: str | None = None
    inner: str | None = None


KINDS = ("input", "output", "operator", "delegate", "jump", "move")


@dataclass(frozen=True)
class Graph:
    """A method, or (`name` with a slash) one of its delegates."""

    name: str
    nodes: tuple[Node, ...]


def graphs(program: Program, content: bytes, method: str, *, is_plan: bool = False) -> list[Graph]:
    """The graph of a method, and behind it those of its delegates, where file or load say what is in them.

    `content` is what `program` was loaded from.

    Raises:
        PteronError: of the plan, those of loading the method.
    """
    found = _Builder(program, content, method, is_plan)
    return [found.whole(), *found.delegates()]


class _Builder:
    def __init__(self, program: Program, content: bytes, method: str, is_plan: bool) -> None:
        self._program, self._name, self._is_plan = program, method, is_plan
        self._file = describe(program).methods[method]
        self._method = describe_plan(program, method) if is_plan else self._file
        self._sources = Sources(program, method)
        (chain,) = read_program(program, content).plan(method).chains
        self._chain = [instruction.instr_args for instruction in chain.instructions]
        self._loops = list(_loops(self._chain))

    def whole(self) -> Graph:
        method = self._method
        nodes = [Node(f"v{at}", "input", _label(method, at)) for at in method.inputs]
        writers = Writers[tuple[str, int]]()
        for at in method.inputs:
            if at in method.tensors:
                writers.note(method.tensors[at], (f"v{at}", 0))
        steps = [self._step(step) for step in method.steps] if self._is_plan else self._calls()
        for node, args in steps:
            _connect(method, node, args, writers)
            nodes.append(node)
        self._set_targets([node for node, _ in steps])
        for at in method.outputs:
            node = Node(f"o{at}", "output", _label(method, at))
            source = writers.of(method.tensors[at]) if at in method.tensors else None
            if source is not None:
                node.edges.append(Edge(*source, at, ""))
            nodes.append(node)
        return Graph(self._name, tuple(nodes))

    def delegates(self) -> Iterator[Graph]:
        """What is in each delegate: steps that load made of it, else what its debug information names."""
        plan = self._plan() if self._file.delegates else None
        for number, delegate in enumerate(self._file.delegates):
            name = f"{self._name}/{delegate['backend']} {number}"
            steps = [] if plan is None else [s for s in plan.steps if s.parts and s.parts[0][0] == number]
            if plan is not None and steps:
                nodes, writers = [], Writers[tuple[str, int]]()
                for step in steps:
                    node, args = self._step(step, plan)
                    _connect(plan, node, args, writers)
                    nodes.append(node)
                yield Graph(name, tuple(nodes))
            elif known := self._sources.of_delegate(number):
                yield Graph(
                    name,
                    tuple(
                        Node(f"h{handle}", "operator", source.operator, source.module, facts=_lines([source]))
                        for handle, source in known
                    ),
                )

    def _plan(self) -> MethodDescription | None:
        try:
            return describe_plan(self._program, self._name)
        except PteronError:
            return None  # A backend or kernel that is not here: the file alone is shown.

    def _calls(self) -> list[tuple[Node, Sequence[int]]]:
        return [(self._call(call), self._args(call)) for call in self._file.calls]

    def _args(self, call: Call) -> Sequence[int]:
        one = self._chain[call.index]
        if hasattr(one, "move_from"):
            return one.move_from, one.move_to
        return (one.cond_value_index,) if hasattr(one, "cond_value_index") else call.args

    def _call(self, call: Call) -> Node:
        source = self._sources.at(call.index)
        node = Node(f"c{call.index}", "operator", call.operator or "", source.module)
        if call.delegate is not None:
            node.kind, node.inner = "delegate", self._inner(call.delegate)
            node.label = f"{self._file.delegates[call.delegate]['backend']}\ndelegate {call.delegate}"
        elif call.operator is None:
            self._control(node, call.index)
        node.loop = self._loops[call.index]
        node.facts = {"instruction": str(call.index), **_lines([source])}
        return node

    def _control(self, node: Node, at: int) -> None:
        one = self._chain[at]
        node.kind = "jump" if hasattr(one, "destination_instruction") else "move"
        node.label = "jump unless" if node.kind == "jump" else "move"

    def _step(self, step: Step, plan: MethodDescription | None = None) -> tuple[Node, Sequence[int]]:
        method = plan or self._method
        operators = [name for at in step.calls if (name := method.calls[at].operator) is not None]
        places = self._sources.of(step)
        node = Node(
            f"s{step.index}",
            "operator",
            f"{' + '.join(operators) or step.name}\n{step.name}",
            places[-1].module if places else "",
        )
        delegate = next((d for at in step.calls if (d := method.calls[at].delegate) is not None), None)
        if delegate is not None:
            node.kind, node.inner = "delegate", self._inner(delegate)
        args: Sequence[int] = results_last(step)
        if len(step.instructions) == 1:
            at = step.instructions[0]
            one = self._chain[at]
            if hasattr(one, "destination_instruction") or hasattr(one, "move_from"):
                self._control(node, at)
                args = self._args(Call(at, None, None, ()))
        if step.instructions:
            node.loop = self._loops[step.instructions[0]]
        node.facts = {
            "kernel": step.name,
            "instructions": ", ".join(map(str, step.instructions)),
            "bytes": str(step.reads + step.writes),
            **_lines(places),
        }
        return node, args

    def _inner(self, delegate: int) -> str:
        return f"{self._name}/{self._file.delegates[delegate]['backend']} {delegate}"

    def _set_targets(self, nodes: Sequence[Node]) -> None:
        """Where jumps go on: the first node of that instruction or a later one."""
        numbers = {}
        for node in nodes:
            texts = node.facts.get("instruction") or node.facts.get("instructions", "")
            numbers[node.id] = [int(text) for text in texts.split(", ") if text]
        for node in nodes:
            if node.kind != "jump":
                continue
            to = self._chain[numbers[node.id][0]].destination_instruction
            node.label = f"jump to {to} unless"
            later = [(min(own), other) for other, own in numbers.items() if own and min(own) >= to]
            node.target = min(later)[1] if later else None


def _connect(
    method: MethodDescription, node: Node, args: Sequence[int], writers: Writers[tuple[str, int]]
) -> None:
    """Edges from what wrote the tensors, and the results of the node."""
    known = [arg for arg in args if arg < len(method.values)]
    results = [] if node.kind == "jump" else _results(method, node, known, writers)
    written = {tensor.index for tensor in results}
    read = {tensor.index: tensor for arg in known for tensor in method.leaves(arg)}
    for tensor in read.values():
        source = writers.of(tensor)
        if source is not None and tensor.index not in written:
            node.edges.append(Edge(*source, tensor.index, tensor.text))
    for number, tensor in enumerate(results):
        node.results.append((tensor.index, tensor.text))
        writers.note(tensor, (node.id, number))


def _results(
    method: MethodDescription, node: Node, args: Sequence[int], writers: Writers[tuple[str, int]]
) -> list[TensorValue]:
    """What a node writes: what stands twice at the end of a kernel's arguments; of a delegate's the last ones
    that nobody has written yet.
    """
    if node.kind == "delegate":
        tensors = [tensor for arg in args for tensor in method.leaves(arg)]
        count = len(tensors)
        while count and tensors[count - 1].stored is None and not writers.has(tensors[count - 1]):
            count -= 1
        return tensors[count:] or tensors[-1:]
    lists = [tuple(tensor.index for tensor in method.leaves(arg)) for arg in args]
    twice = (n for n in range(len(args) // 2, 0, -1) if lists[-n:] == lists[-2 * n : -n] and all(lists[-n:]))
    count = next(twice, 1)
    return [tensor for arg in args[len(args) - count :] for tensor in method.leaves(arg)]


def _label(method: MethodDescription, at: int) -> str:
    tensor = method.tensors.get(at)
    return f"value {at}" if tensor is None else tensor.text


def _lines(sources: Iterable[Source]) -> dict[str, str]:
    lines = dict.fromkeys(source.line for source in sources if source.line)
    return {"source": ", ".join(lines)} if lines else {}


def _loops(chain: Sequence[Any]) -> Iterator[str]:
    """For each instruction the outermost loop or branch that it is in; empty for none."""
    count = len(chain)
    spans = []
    for at, one in enumerate(chain):
        to = getattr(one, "destination_instruction", None)
        if to is not None:
            spans.append((to, at, "loop") if to <= at else (at, min(to, count) - 1, "branch"))
    for at in range(count):
        around = [(start - end, start, kind) for start, end, kind in spans if start <= at <= end]
        yield f"{min(around)[2]} at {min(around)[1]}" if around else ""

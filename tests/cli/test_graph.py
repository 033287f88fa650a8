"""Graphs of files and plans, in each format."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import pteron
from pteron.devtools.description import describe, describe_plan
from pteron.devtools.graph.nodes import KINDS, graphs
from pteron.devtools.live_memory import live_bytes
from tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
LOOPS = ROOT / "tests" / "corpus" / "seeds" / "loops.pte"
BLOCK = ROOT / "rust" / "pteron-xnnpack" / "tests" / "programs" / "block.pte"
#: Fields of a node in Model Explorer 0.1.34 (`graph_builder.GraphNode`).
NODE_FIELDS = {
    "id", "label", "namespace", "subgraphIds", "attrs", "incomingEdges", "outputsMetadata", "inputsMetadata",
    "style", "config",
}  # fmt: skip


def test_dot_has_a_node_for_each_call(model_file: Path, command: Command, tmp_path: Path) -> None:
    file = command("graph", model_file).out
    assert file.startswith("digraph {")
    assert file.count("{") == file.count("}") == 1
    assert "aten::convolution.out" in file
    # The reshape between them is only a name: the edge is there.
    assert '  c1 -> c2 [label="float32[1, 288]"]' in file.splitlines()
    out = tmp_path / "plan.dot"
    assert command("graph", model_file, "--plan", "-o", out).code == 0
    nodes = [line for line in out.read_text().splitlines() if line.startswith("  s") and "->" not in line]
    assert len(nodes) == len(pteron.load(model_file).kernels())


@pytest.mark.parametrize("path", [LOOPS, BLOCK], ids=lambda path: path.stem)
@pytest.mark.parametrize("is_plan", [False, True])
def test_nodes_are_those_of_the_method(path: Path, is_plan: bool) -> None:
    program = pteron.load(path)
    whole, *inner = graphs(program, path.read_bytes(), "forward", is_plan=is_plan)
    method = describe_plan(program) if is_plan else describe(program).methods["forward"]
    kinds = Counter(node.kind for node in whole.nodes)
    assert set(kinds) <= set(KINDS)
    assert kinds["input"] == len(method.inputs)
    assert kinds["output"] == len(method.outputs)
    assert len(whole.nodes) - kinds["input"] - kinds["output"] == len(
        method.steps if is_plan else method.calls
    )
    for graph in (whole, *inner):
        names = [node.id for node in graph.nodes]
        assert len(names) == len(set(names))
        for node in graph.nodes:
            assert all(edge.source in names for edge in node.edges)
            assert node.target is None or node.target in names
            assert node.inner is None or node.inner in {one.name for one in inner}


def test_loops_and_delegates_are_opened() -> None:
    whole, *inner = graphs(pteron.load(LOOPS), LOOPS.read_bytes(), "forward")
    assert not inner
    jumps = [node for node in whole.nodes if node.kind == "jump"]
    assert [node.label for node in jumps[:2]] == ["jump to 12 unless", "jump to 2 unless"]
    assert [node.target for node in jumps[:2]] == ["c12", "c2"]
    assert {node.loop for node in whole.nodes} == {"", "loop at 2", "loop at 15"}
    whole, *inner = graphs(pteron.load(BLOCK), BLOCK.read_bytes(), "forward")
    calls = [node for node in whole.nodes if node.kind == "delegate"]
    assert [node.inner for node in calls] == [graph.name for graph in inner]
    assert all(node.edges for node in calls)
    assert len(calls[0].results) == 2
    assert any("linear" in node.label for node in inner[0].nodes)


@pytest.mark.parametrize("path", [LOOPS, BLOCK], ids=lambda path: path.stem)
def test_a_picture_has_every_node_in_its_frame(path: Path, command: Command) -> None:
    svg = ElementTree.fromstring(command("graph", path, "--format", "svg").out)
    space = "{http://www.w3.org/2000/svg}"
    found = graphs(pteron.load(path), path.read_bytes(), "forward")
    boxes = svg.findall(f".//{space}rect")
    assert len(boxes) == sum(len(graph.nodes) for graph in found)
    width = float(svg.attrib["width"])
    for box in boxes:
        assert 0 <= float(box.attrib["x"]) <= float(box.attrib["x"]) + float(box.attrib["width"]) <= width
    for group in svg.findall(f"{space}g"):
        rows: dict[str, list[tuple[float, float]]] = {}
        for box in group.findall(f".//{space}rect"):
            x, y, w, h = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
            rows.setdefault(f"{y + h / 2:.0f}", []).append((x, x + w))
        for row in rows.values():
            ends = [end for _, end in sorted(row)]
            assert all(end <= start for end, (start, _) in zip(ends, sorted(row)[1:], strict=False))


@pytest.mark.parametrize("path", [LOOPS, BLOCK], ids=lambda path: path.stem)
def test_json_has_what_the_graphs_have(path: Path, command: Command) -> None:
    data = command("graph", path, "--json").json
    program = pteron.load(path)
    method = "forward" if "forward" in program.methods else program.methods[0]
    found = graphs(program, path.read_bytes(), method)
    assert [one["name"] for one in data] == [graph.name for graph in found]
    for one, graph in zip(data, found, strict=True):
        assert [node["id"] for node in one["nodes"]] == [node.id for node in graph.nodes]
        assert [[edge["source"] for edge in node["edges"]] for node in one["nodes"]] == [
            [edge.source for edge in node.edges] for node in graph.nodes
        ]


def test_model_explorer_has_modules_as_layers(model_file: Path, command: Command, tmp_path: Path) -> None:
    data = command("graph", model_file, "--plan", "--format", "model-explorer").json
    assert set(data) == {"label", "graphs"}
    (graph,) = data["graphs"]
    nodes: dict[str, Any] = {node["id"]: node for node in graph["nodes"]}
    assert all(set(node) <= NODE_FIELDS for node in nodes.values())
    assert {"first/1", "head"} <= {node["namespace"] for node in nodes.values()}
    for node in nodes.values():
        for edge in node["incomingEdges"]:
            outputs = [each["id"] for each in nodes[edge["sourceNodeId"]]["outputsMetadata"]]
            assert edge["sourceNodeOutputId"] in outputs or edge["sourceNodeId"].startswith("v")
    times = tmp_path / "times.json"
    assert command("profile", model_file, "--runs", 1, "--node-data", times).code == 0
    overlay = json.loads(times.read_text())[graph["id"]]
    assert set(overlay["results"]) == {name for name in nodes if name.startswith("s")}
    assert all(result["value"] > 0 for result in overlay["results"].values())
    assert [stop["stop"] for stop in overlay["gradient"]] == [0, 0.5, 1]
    inner = command("graph", BLOCK, "--format", "model-explorer").json["graphs"]
    names = {one["id"] for one in inner}
    assert {sub for node in inner[0]["nodes"] for sub in node["subgraphIds"]} == names - {"forward"}


def test_live_memory_is_what_later_steps_read(model_file: Path) -> None:
    plan = describe_plan(pteron.load(model_file))
    found = live_bytes(plan)
    # The image and the result of the convolution; that and the head's; the head's and the output.
    assert found == [4 * (3 * 64 + 8 * 36), 4 * (8 * 36 + 4), 4 * 8]
    assert max(found) <= sum(plan.arenas)
    assert np.all(np.asarray(live_bytes(describe_plan(pteron.load(BLOCK)))) > 0)

"""A graph as an SVG picture: layers from top to bottom, ordered so that few edges cross."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from pteron.devtools.graph.nodes import Graph, Node

#: Sizes in pixels.
CHARACTER, LINE, PAD, GAP_X, GAP_Y = 7.0, 15.0, 8.0, 24.0, 46.0
FILL = {
    "input": "#d9ead3",
    "output": "#d9ead3",
    "operator": "#eef3fb",
    "delegate": "#fce5cd",
    "jump": "#fff2cc",
    "move": "#eeeeee",
}
SWEEPS = 6
HEAD = (
    "<style>text{font:12px monospace;fill:#222}path{fill:none;stroke:#888}rect{stroke:#666}"
    "@media(prefers-color-scheme:dark){svg{background:#1e1e1e}svg>text{fill:#ddd}}</style>"
    '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#888"/></marker></defs>'
)


def svg(found: Sequence[Graph]) -> str:
    """The graph of a method, and below it those of its delegates. A node's title says what is known of it."""
    parts, width, top = [], 0.0, 0.0
    for graph in found:
        picture = _Picture(graph)
        body = picture.body()
        parts.append(f'<g transform="translate(0,{top + 2 * LINE:.0f})">{body}</g>')
        parts.append(
            f'<text x="{PAD}" y="{top + LINE + 4:.0f}" font-weight="bold">{escape(graph.name)}</text>'
        )
        width, top = max(width, picture.width), top + picture.height + 3 * LINE
    size = f'viewBox="0 0 {width:.0f} {top:.0f}" width="{width:.0f}" height="{top:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{HEAD}{"".join(parts)}</svg>\n'


class _Picture:
    """Places of the nodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.id: node for node in graph.nodes}
        self._size = {node.id: _size(node) for node in graph.nodes}
        self._layers = self._ordered(self._layered())
        self._place: dict[str, tuple[float, float]] = {}
        self.width = 2 * PAD + max((self._width_of(layer) for layer in self._layers), default=0.0)
        self.height = self._put()

    def body(self) -> str:
        out = []
        for node in self._nodes.values():
            out += [
                self._edge(edge.source, node.id, edge.text)
                for edge in node.edges
                if edge.source in self._place
            ]
            if node.target is not None:
                out.append(self._edge(node.id, node.target, "", is_jump=True))
        return "".join([*out, *(self._box(node) for node in self._nodes.values())])

    def _layered(self) -> list[list[str]]:
        """Each node below all that it reads from."""
        depth: dict[str, int] = {}
        for node in self._nodes.values():  # in the order of execution, sources first
            depth[node.id] = max((depth[e.source] + 1 for e in node.edges if e.source in depth), default=0)
        layers: dict[int, list[str]] = defaultdict(list)
        for name, at in depth.items():
            layers[at].append(name)
        return [layers[at] for at in sorted(layers)]

    def _ordered(self, layers: list[list[str]]) -> list[list[str]]:
        """Nodes near the middle of their neighbours, from the top and from the bottom in turn."""
        near: dict[str, list[str]] = defaultdict(list)
        for node in self._nodes.values():
            for edge in node.edges:
                near[node.id].append(edge.source)
                near[edge.source].append(node.id)
        for sweep in range(SWEEPS):
            place = {name: at / max(1, len(layer)) for layer in layers for at, name in enumerate(layer)}
            for layer in layers if sweep % 2 == 0 else reversed(layers):
                middle = {
                    name: sum(place[n] for n in near[name]) / len(near[name]) if near[name] else place[name]
                    for name in layer
                }
                layer.sort(key=lambda name, middle=middle: middle[name])  # type: ignore[misc]
                place |= {name: at / len(layer) for at, name in enumerate(layer)}
        return layers

    def _width_of(self, layer: Sequence[str]) -> float:
        return sum(self._size[name][0] for name in layer) + GAP_X * (len(layer) - 1)

    def _put(self) -> float:
        y = PAD
        for layer in self._layers:
            x = (self.width - self._width_of(layer)) / 2
            tallest = max(self._size[name][1] for name in layer)
            for name in layer:
                width, height = self._size[name]
                self._place[name] = x, y + (tallest - height) / 2
                x += width + GAP_X
            y += tallest + GAP_Y
        return y

    def _edge(self, source: str, target: str, text: str, *, is_jump: bool = False) -> str:
        (x0, y0), (w0, h0) = self._place[source], self._size[source]
        (x1, y1), (w1, _) = self._place[target], self._size[target]
        x0, y0, x1 = x0 + w0 / 2, y0 + h0, x1 + w1 / 2
        bend = max(GAP_Y / 2, abs(y1 - y0) / 3)
        dash = ' stroke-dasharray="4 3"' if is_jump else ""
        title = f"<title>{escape(text)}</title>" if text else ""
        curve = f"{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"
        return f'<path d="M{x0:.0f} {y0:.0f}C{curve}" marker-end="url(#end)"{dash}>{title}</path>'

    def _box(self, node: Node) -> str:
        (x, y), (width, height) = self._place[node.id], self._size[node.id]
        facts = "\n".join(f"{key}: {value}" for key, value in node.facts.items())
        round_ = height / 2 if node.kind in ("input", "output") else 3
        lines = "".join(
            f'<text x="{x + width / 2:.0f}" y="{y + PAD + LINE * (at + 0.8):.0f}" text-anchor="middle"'
            f' style="fill:#222">{escape(line)}</text>'
            for at, line in enumerate(_text(node))
        )
        frame = (
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="{round_:.0f}"'
            f' fill="{FILL[node.kind]}"/>'
        )
        return f"<g><title>{escape(facts)}</title>{frame}{lines}</g>"


def _text(node: Node) -> list[str]:
    where = [text for text in (node.module, node.loop) if text]
    shapes = [text for _, text in node.results]
    return [*node.label.split("\n"), *shapes, *where]


def _size(node: Node) -> tuple[float, float]:
    lines = _text(node)
    return max(len(line) for line in lines) * CHARACTER + 2 * PAD + 6, len(lines) * LINE + 2 * PAD

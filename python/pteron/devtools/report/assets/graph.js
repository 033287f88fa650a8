// The graph with modules inside modules, of the file or of the plan; a fused step is a box around what it replaces.

class GraphPane {
  constructor(body, runOf, label) {
    this.runOf = runOf;
    this.open = new Map();
    this.scale = 1;
    this.origin = [0, 0];
    this.content = svg("g");
    this.root = svg("svg", { tabindex: 0, role: "group", "aria-label": label, class: "graph" }, this.arrow(label),
        this.content);
    body.append(this.root);
    this.root.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.root.addEventListener("pointerdown", (event) => this.down(event));
    this.root.addEventListener("pointermove", (event) => this.move(event));
    this.root.addEventListener("pointerup", () => { setTimeout(() => { this.drag = null; }, 0); });
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.view = { width: 0, height: 0 };
    new ResizeObserver(([entry]) => {
      this.view = entry.contentRect;
      if (!this.isFitted) this.fit();
    }).observe(this.root);
    on("view", () => this.rebuild());
    on("selection", () => this.follow());
    on("search", () => this.mark());
    this.rebuild();
    PANES.push(this);
  }
  arrow(label) {
    this.head = `arrow-${label.replace(/\W+/g, "-")}`;
    return svg("defs", {}, svg("marker", { id: this.head, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6,
        markerHeight: 6, orient: "auto" },
      svg("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" })));
  }
  get layer() { return this.runOf().program.layer(state.layer); }
  get opened() {
    const layer = this.layer;
    if (!this.open.has(layer)) {
      const open = new Set();
      // A fused step shows what it replaces as soon as it is in sight; modules open when there are few.
      if (layer.id === "plan") layer.instructions.forEach((list, at) => { if (list.length > 1) open.add(`plan ${at}`); });
      this.open.set(layer, open);
    }
    return this.open.get(layer);
  }
  rebuild() {
    const layer = this.layer;
    if (this.shown !== layer) {
      this.shown = layer;
      layer.boxes ??= this.makeBoxes(layer);
      this.tree = layer.boxes.tree;
      this.edges = layer.boxes.edges;
      this.isFitted = false;
      if (layer.count <= 60) this.openSome(60);
    }
    this.arrange();
  }
  makeBoxes(layer) {
    const tree = boxTree(layer);
    addBorders(tree, layer);
    return { tree, edges: leafEdges(tree, layer) };
  }
  // Opens modules from the outside until so many boxes are in sight.
  openSome(most) {
    const queue = [...this.tree.root.children];
    let count = queue.length;
    while (queue.length && count < most) {
      const box = queue.shift();
      if (box.kind !== "module" && box.kind !== "piece") continue;
      this.opened.add(box.id);
      count += box.children.length;
      queue.push(...box.children);
    }
  }
  sizeOf(box) {
    const text = this.lines(box);
    return { width: Math.max(...text.map((line) => line.length)) * 6.3 + 22, height: text.length * 14 + 12 };
  }
  lines(box) {
    const layer = this.layer;
    const run = this.runOf();
    if (box.kind === "input" || box.kind === "output") return [clip(box.label, 40)];
    if (box.kind === "part") return [clip(`${box.instruction} ${box.label}`, 40)];
    if (box.kind === "node") {
      const text = [clip(`${box.node} ${box.within ? `${box.within} · ` : ""}${box.label}`, 48)];
      const more = layer.id === "plan" ? run.kernel(box.node) : layer.text("backend", box.node);
      if (more && more !== box.label) text.push(clip(more, 44));
      return text;
    }
    const share = this.share(box);
    return [clip(box.label, 40), `${plural(box.nodes.length, layer.id === "plan" ? "step" : "instruction")}${share}`];
  }
  share(box) {
    const run = this.runOf();
    if (!run.isMeasured || this.layer.id !== "plan") return "";
    return ` · ${formatShare(run.sum(box.nodes).ns / (run.total || 1))}`;
  }
  arrange() {
    for (const box of this.tree.leaf.values()) if (box.isGroup) box.title = this.title(box);
    const lines = layOut(this.tree, this.edges, this.opened, (box) => this.sizeOf(box));
    const groups = [];
    const boxes = [];
    const visit = (box, x, y) => {
      box.left = x;
      box.top = y;
      const isOpen = box.isGroup && (!box.parent || this.opened.has(box.id));
      if (box.parent) (isOpen ? groups : boxes).push(box);
      if (isOpen) for (const child of box.children) visit(child, x + child.x, y + child.y);
    };
    visit(this.tree.root, 0, 0);
    this.elements = [...groups.map((box) => [box, this.group(box)]), ...boxes.map((box) => [box, this.leaf(box)])];
    const edges = svg("g", { class: "edges", "aria-hidden": "true" }, lines.map((line) => this.edge(line)));
    show(this.content, this.elements.slice(0, groups.length).map(([, one]) => one), edges,
      ...this.elements.slice(groups.length).map(([, one]) => one));
    this.root.dataset.boxes = String(this.elements.length);
    if (!this.isFitted) this.fit();
    this.mark();
  }
  title(box) {
    if (box.kind !== "node") return box.label;
    return clip(`${box.node} ${box.within ? `${box.within} · ` : ""}${this.runOf().kernel(box.node)}`, 56);
  }
  group(box) {
    const isStep = box.kind === "node";
    const title = this.title(box);
    return this.listen(box, svg("g", { class: isStep ? "group fused" : "group", role: "button",
        "aria-expanded": "true", "aria-label": `${title}, open` },
      svg("rect", { x: box.left, y: box.top, width: box.width, height: box.height, rx: 7 }),
      svg("text", { x: box.left + 22, y: box.top + 15 }, clip(title, Math.floor((box.width - 26) / 6.2))),
      this.sign(box, "−")));
  }
  leaf(box) {
    const run = this.runOf();
    const isGroup = box.isGroup;
    const text = this.lines(box);
    let colour = null;
    if (box.kind === "node") colour = nodeColour(run, state.colouring, this.layer, box.node);
    else if (box.kind === "part") colour = nodeColour(run, state.colouring, run.program.file, box.instruction);
    else if (isGroup) colour = groupColour(run, state.colouring, this.layer, box.nodes);
    const shape = svg("rect", { x: box.left, y: box.top, width: box.width, height: box.height,
        rx: box.kind === "input" || box.kind === "output" ? 12 : 4 });
    if (colour) shape.style.fill = colour;
    const rows = text.map((line, at) => svg("text",
        { x: box.left + (isGroup ? 22 : 10), y: box.top + 18 + at * 14, class: at ? "more" : "" }, line));
    if (colour) for (const row of rows) row.style.fill = inkOn(colour);
    const label = box.kind === "node" || box.kind === "part" ? text.join(", ")
        : `${box.kind} ${box.path || box.label}, ${text.join(", ")}`;
    return this.listen(box, svg("g", { class: `box ${box.kind}`, role: "button", "aria-label": label,
        "aria-expanded": isGroup ? "false" : null },
      shape, rows, isGroup ? this.sign(box, "+", colour) : null));
  }
  sign(box, text, colour) {
    const sign = svg("text", { x: box.left + 8, y: box.top + 15, class: "sign" }, text);
    if (colour) sign.style.fill = inkOn(colour);
    sign.addEventListener("click", (event) => { event.stopPropagation(); if (!this.drag?.moved) this.toggle(box); });
    return sign;
  }
  jump(from, to) {
    const [x1, y1] = [from.left + from.width, from.top + from.height / 2];
    const [x2, y2] = [to.left + to.width, to.top + to.height / 2];
    const bow = Math.max(x1, x2) + 30 + Math.abs(y2 - y1) / 12;
    return svg("path", { class: "jump", d: `M${x1} ${y1} C${bow} ${y1} ${bow} ${y2} ${x2} ${y2}`,
        "marker-end": `url(#${this.head})` });
  }
  edge({ from, to, count, isJump }) {
    if (isJump) return this.jump(from, to);
    const x1 = from.left + from.width / 2;
    const y1 = from.top + from.height;
    const x2 = to.left + to.width / 2;
    const y2 = to.top;
    const drop = y2 - y1;
    const bend = Math.max(18, Math.min(Math.abs(drop) / 2, 60));
    // An edge that jumps over rows goes around them.
    const bow = drop > 120 && Math.abs(x1 - x2) < 60 ? 0.75 * Math.max(from.width, to.width) + 20 : 0;
    const path = bow ? `M${x1} ${y1} C${x1 + bow} ${y1 + 0.2 * drop} ${x2 + bow} ${y2 - 0.2 * drop} ${x2} ${y2}`
      : `M${x1} ${y1} C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
    return svg("path", { d: path, "stroke-width": Math.min(1 + Math.log2(count) * 0.5, 3),
        "marker-end": `url(#${this.head})` });
  }
  listen(box, element) {
    element.addEventListener("click", (event) => { event.stopPropagation(); if (!this.drag?.moved) this.pick(box); });
    element.addEventListener("dblclick", (event) => { event.stopPropagation(); this.toggle(box); });
    element.addEventListener("pointermove", (event) => { if (!this.drag) tooltip.show(event, this.facts(box)); });
    element.addEventListener("pointerleave", () => tooltip.hide());
    return element;
  }
  facts(box) {
    const run = this.runOf();
    const layer = box.kind === "part" ? run.program.file : this.layer;
    const at = box.kind === "part" ? box.instruction : box.node;
    if (box.kind === "node" || box.kind === "part") {
      return [`${layer.id === "plan" ? "step" : "instruction"} ${at} ${layer.text("operator", at)}`,
          layer.module(at), layer.text("line", at),
        layer.id === "plan" && run.isMeasured ? formatTime(run.ns[at]) : "", formatBytes(layer.bytes[at])];
    }
    return [box.path || box.label, ...this.lines(box).slice(1)];
  }
  pick(box) {
    const run = this.runOf();
    if (box.kind === "module") chooseModule(run, box.path);
    else if (box.kind === "node") chooseNode(run, this.layer.id, box.node);
    else if (box.kind === "part") chooseInstruction(run, box.instruction);
    else if (box.kind === "input") chooseLifetime(run, this.layer, box.lifetime);
    else this.toggle(box);
  }
  toggle(box) {
    if (!box.isGroup) return;
    const before = [box.left, box.top];
    if (!this.opened.delete(box.id)) this.opened.add(box.id);
    this.arrange();
    // The box stays under the pointer.
    this.origin = [this.origin[0] - (box.left - before[0]) * this.scale,
        this.origin[1] - (box.top - before[1]) * this.scale];
    this.place();
  }
  isMarked(box) {
    const { selection } = state;
    const run = this.runOf();
    if (!selection) return false;
    if (box.kind === "module") return selection.module !== null ? isInside(box.path, selection.module) : false;
    if (box.kind === "part") return selection.in(run).instructions.has(box.instruction)
        && !(selection.module === null && selection.in(run).steps.size > 1);
    if (box.kind === "node") return selection.nodes(run, this.layer.id).has(box.node);
    return false;
  }
  // A closed group that holds a part of the selection.
  isAround(box) {
    if (!state.selection || !box.isGroup || this.opened.has(box.id) || box.kind === "node") return false;
    const chosen = state.selection.nodes(this.runOf(), this.layer.id);
    return box.nodes.some((at) => chosen.has(at));
  }
  mark() {
    const run = this.runOf();
    for (const [box, element] of this.elements) {
      element.classList.toggle("selected", this.isMarked(box));
      element.classList.toggle("around", this.isAround(box));
      const isFaint = Boolean(state.search) && box.kind === "node" && this.layer.id === "plan"
          && !matchesSearch(run, box.node);
      element.classList.toggle("dim", isFaint);
    }
  }
  follow() {
    const { selection } = state;
    const target = selection && this.target(selection);
    if (!target) { this.mark(); return; }
    let changed = false;
    for (const box of ancestors(target).slice(1, -1)) {
      if (!this.opened.has(box.id)) { this.opened.add(box.id); changed = true; }
    }
    if (changed) this.arrange(); else this.mark();
    this.reveal(target);
  }
  target(selection) {
    const nodes = [...selection.nodes(this.runOf(), this.layer.id)];
    const leaf = nodes.length ? this.tree.leaf.get(Math.min(...nodes)) : null;
    if (!leaf || selection.module === null) return leaf;
    return ancestors(leaf).find((box) => box.kind === "module" && box.path === selection.module) ?? leaf;
  }
  reveal(box) {
    const { view } = this;
    const [x, y] = [this.origin[0] + box.left * this.scale, this.origin[1] + box.top * this.scale];
    const [wide, high] = [box.width * this.scale, Math.min(box.height * this.scale, view.height)];
    const isOutside = x < 0 || x + Math.min(wide, view.width) > view.width;
    if (isOutside) this.origin[0] += Math.max(8, (view.width - wide) / 2) - x;
    if (y < 0 || y + high > view.height) this.origin[1] += Math.max(8, (view.height - high) / 2) - y;
    this.place();
  }
  fit() {
    const { view } = this;
    if (!view.width || !this.tree) return;
    this.isFitted = true;
    const { width, height } = this.tree.root;
    this.scale = Math.max(0.35, Math.min(1, (view.width - 16) / width, Math.max(544 / height, 0.75)));
    this.root.style.height = `${Math.max(180, Math.min(560, height * this.scale + 20))}px`;
    this.origin = [Math.max(8, (view.width - width * this.scale) / 2), 8];
    this.place();
  }
  // On paper all boxes that are open, on one page if they can be read there; what was in sight comes back.
  print(isPrinting) {
    if (isPrinting) {
      const { width, height } = this.tree.root;
      this.kept ??= [this.scale, this.origin, this.root.style.height];
      this.scale = Math.min(1, PAPER.width / (width + 16), Math.max(0.6, PAPER.height / (height + 20)));
      this.origin = [(PAPER.width - width * this.scale) / 2, 8];
      this.root.style.height = `${height * this.scale + 20}px`;
    } else if (this.kept) {
      [this.scale, this.origin, this.root.style.height] = this.kept;
      this.kept = null;
    }
    this.place();
  }
  place() {
    this.content.setAttribute("transform", `translate(${this.origin[0]} ${this.origin[1]}) scale(${this.scale})`);
  }
  zoom(factor, x, y) {
    const scale = Math.max(0.05, Math.min(4, this.scale * factor));
    this.origin = [x - ((x - this.origin[0]) * scale) / this.scale, y - ((y - this.origin[1]) * scale) / this.scale];
    this.scale = scale;
    this.place();
  }
  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey && document.activeElement !== this.root) return;
    event.preventDefault();
    const box = this.root.getBoundingClientRect();
    this.zoom((event.deltaY || event.deltaX) > 0 ? 0.85 : 1.18, event.clientX - box.left, event.clientY - box.top);
  }
  down(event) { this.drag = { x: event.clientX, y: event.clientY, moved: false }; }
  move(event) {
    if (!this.drag || !event.buttons) return;
    const [dx, dy] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (Math.abs(dx) + Math.abs(dy) > 4) this.drag.moved = true;
    if (!this.drag.moved) return;
    this.origin = [this.origin[0] + dx, this.origin[1] + dy];
    this.drag = { x: event.clientX, y: event.clientY, moved: true };
    this.place();
  }
  key(event) {
    const { view } = this;
    const middle = [view.width / 2, view.height / 2];
    const actions = {
      ArrowRight: () => this.step(1), ArrowDown: () => this.step(1), ArrowLeft: () => this.step(-1),
          ArrowUp: () => this.step(-1),
      "+": () => this.zoom(1.25, ...middle), "=": () => this.zoom(1.25, ...middle),
          "-": () => this.zoom(0.8, ...middle),
      0: () => this.fit(), Escape: () => choose(null),
      Enter: () => { const box = state.selection && this.target(state.selection);
          if (box) this.toggle(box.isGroup ? box : box.parent); },
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }
  step(distance) {
    const run = this.runOf();
    if (this.layer.id === "plan") { stepBy(run, distance); return; }
    const chosen = state.selection ? [...state.selection.in(run).instructions] : [];
    const from = chosen.length ? (distance > 0 ? Math.max(...chosen) : Math.min(...chosen)) : -1;
    chooseInstruction(run, Math.max(0, Math.min(this.layer.count - 1, from + distance)));
  }
}

const PANES = [];
// Within the margins of A4 and Letter, in CSS pixels; report.css has the same width.
const PAPER = { width: 700, height: 780 };

function graphView() {
  const view = section("graph", "Graph", "What reads what. A dashed box is a fused step, around the instructions that it replaces; a dashed edge is a jump. Click a sign to open or close a box.", [
    layerSwitch(), el("button", { onclick: () => { pane.openSome(1200); pane.isFitted = false; pane.arrange(); } },
        "Open all"),
    el("button", { onclick: () => { pane.opened.clear(); pane.isFitted = false; pane.arrange(); } }, "Close all"),
    el("button", { onclick: () => pane.fit() }, "Everything")]);
  const pane = new GraphPane(view.body, () => state.run, "Graph of the program");
  return pane;
}

// The same choice in the graph and in the memory map.
function layerSwitch() {
  const box = select("layer", [["plan", "plan after load"], ["file", "file"]], state.layer,
      (value) => { state.layer = value; emit("view"); });
  on("view", () => { box.querySelector("select").value = state.layer; });
  return box;
}

// Weights as areas, in the areas of their modules.

class Treemap {
  constructor() {
    this.colouring = "kind";
    this.view = section("weights", "Weights", "Stored bytes as areas, modules around them. A dashed border: the file has the same bytes more than once.", [
      select("colour", [["kind", "element type"], ["time", "steps that read"]], "kind",
          (value) => { this.colouring = value; this.canvas.redraw(); })]);
    this.about = el("p", { class: "about" });
    this.view.body.append(this.about);
    this.canvas = new Canvas(this.view.body, "Weights",
        { draw: (...all) => this.draw(...all), mark: (...all) => this.mark(...all), hit: (x, y) => this.hit(x, y),
        height: () => (this.tree?.total ? 340 : 24) });
    on("view", () => this.rebuild());
    on("selection", () => this.canvas.remark());
    this.rebuild();
  }
  rebuild() {
    const weights = state.run.program.weights;
    this.kinds = new Categories(PROGRAMS.flatMap((program) => program.weights.kind.map((at) => TEXTS[at])));
    const tree = new Module("", "", null);
    weights.bytes.forEach((nbytes, at) => {
      if (!nbytes) return;
      let here = tree;
      const path = TEXTS[weights.module[at]] || "(not known)";
      for (const part of path.split(".")) here = here.child(part);
      here.nodes.push(at);
    });
    const sum = (module) => {
      module.total = module.nodes.reduce((total, at) => total + weights.bytes[at], 0)
          + module.children.reduce((total, one) => total + sum(one), 0);
      return module.total;
    };
    const total = sum(tree);
    this.tree = tree;
    const byKind = new Map();
    weights.kind.forEach((kind, at) => byKind.set(TEXTS[kind], (byKind.get(TEXTS[kind]) ?? 0) + weights.bytes[at]));
    show(this.about, `${formatBytes(total)} in ${plural(weights.bytes.length, "weight")}. `,
      el("span", { class: "legend" }, [...byKind].sort((a, b) => b[1] - a[1]).map(([kind, nbytes]) => [
        el("i", { "data-kind": kind, style: { background: this.kinds.colour(kind) } }),
            el("span", {}, `${kind} ${formatBytes(nbytes)}`)])));
    this.canvas.label(`Treemap of ${formatBytes(total)} of weights`);
    this.canvas.redraw();
  }
  colour(run, at) {
    const weights = run.program.weights;
    if (this.colouring === "kind") return this.kinds.colour(TEXTS[weights.kind[at]]);
    const steps = weights.readers[at].flatMap((one) => run.plan.byInstruction.get(one) ?? []);
    return steps.length ? stepColour(run, state.colouring, steps[0]) : UNKNOWN[theme.name];
  }
  draw(context, width, height, colours) {
    const run = state.run;
    const weights = run.program.weights;
    this.areas = [];
    const place = (module, x, y, wide, high) => {
      const isNamed = module.parent && wide > 40 && high > 26;
      const pad = module.parent && Math.min(wide, high) > 12 ? 2 : 0;
      const top = isNamed ? 15 : pad;
      if (module.parent) this.areas.push({ module, x, y, wide, high });
      const items = [...module.children.map((one) => [one, one.total]),
          ...module.nodes.map((at) => [at, weights.bytes[at]])]
        .filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
      squarify(items, x + pad, y + top, wide - 2 * pad, high - top - pad, (item, ...box) => {
        if (item instanceof Module) place(item, ...box);
        else this.areas.push({ weight: item, x: box[0], y: box[1], wide: box[2], high: box[3] });
      });
    };
    place(this.tree, 0, 0, width, height);
    for (const area of this.areas) {
      const { x, y, wide, high } = area;
      if (area.module) {
        context.fillStyle = area.module.depth % 2 ? colours.surface : colours.faint;
        context.fillRect(x, y, wide - 1, high - 1);
        if (wide > 40 && high > 26) drawLabel(context, area.module.name, x + 4, y + 8, wide - 8, colours.ink);
        continue;
      }
      const colour = this.colour(run, area.weight);
      context.fillStyle = colour;
      context.fillRect(x, y, Math.max(wide - 1, 0.5), Math.max(high - 1, 0.5));
      if (weights.copies[area.weight] > 1) {
        context.strokeStyle = colours.ink;
        context.setLineDash([3, 3]);
        context.strokeRect(x + 1.5, y + 1.5, Math.max(wide - 4, 1), Math.max(high - 4, 1));
        context.setLineDash([]);
      }
      if (wide > 50 && high > 15) drawLabel(context, this.name(area.weight), x + 4, y + high / 2, wide - 8,
          inkOn(colour));
    }
  }
  mark(context, colours) {
    const { selection, run } = state;
    if (!selection) return;
    const { instructions } = selection.in(run);
    const marked = (area) => area.module ? selection.module === area.module.path
      : run.program.weights.readers[area.weight].some((one) => instructions.has(one));
    context.strokeStyle = colours.mark;
    context.lineWidth = 2;
    for (const { x, y, wide, high } of this.areas.filter(marked)) context.strokeRect(x + 1, y + 1,
        Math.max(wide - 3, 1), Math.max(high - 3, 1));
  }
  name(at) {
    const weights = state.run.program.weights;
    const name = TEXTS[weights.name[at]].split(".").at(-1);
    return `${name}${name ? " " : ""}${TEXTS[weights.text[at]]}`;
  }
  title(at) {
    const weights = state.run.program.weights;
    return TEXTS[weights.name[at]] || `${TEXTS[weights.text[at]]} at byte ${weights.place[at]}`;
  }
  hit(x, y) {
    const run = state.run;
    const weights = run.program.weights;
    const found = (this.areas ?? []).filter((one) => x >= one.x && x < one.x + one.wide && y >= one.y && y < one.y
        + one.high).at(-1);
    if (!found) return null;
    if (found.module) {
      return { choose: () => chooseModule(run, found.module.path),
          lines: () => [found.module.path, formatBytes(found.module.total)] };
    }
    const at = found.weight;
    const readers = weights.readers[at];
    return {
      choose: () => choose(new Selection(run, { instructions: readers, title: this.title(at) })),
      lines: () => [this.title(at), `${TEXTS[weights.text[at]]}, ${formatBytes(weights.bytes[at])}`,
          TEXTS[weights.module[at]],
        readers.length ? `read by ${plural(readers.length, "instruction")}` : "read by no instruction of this method",
        weights.copies[at] > 1 ? `${weights.copies[at]} times in the file` : ""],
    };
  }
}

// Rows of areas as near to squares as can be: each row takes what makes its worst shape better.
function squarify(items, x, y, wide, high, put) {
  let left = items.reduce((sum, [, value]) => sum + value, 0);
  let at = 0;
  while (at < items.length && left > 0 && wide > 0 && high > 0) {
    const side = Math.min(wide, high);
    const scale = (wide * high) / left;
    let sum = 0;
    let worst = Infinity;
    let end = at;
    while (end < items.length) {
      const next = sum + items[end][1];
      const thick = (next * scale) / side;
      const shapes = [items[at][1], items[end][1]].map((value) => { const long = (value * scale) / thick;
          return Math.max(long / thick, thick / long); });
      const shape = Math.max(...shapes);
      if (shape > worst) break;
      worst = shape;
      sum = next;
      end++;
    }
    const thick = (sum * scale) / side;
    let along = 0;
    for (const [item, value] of items.slice(at, end)) {
      const long = (value * scale) / thick;
      if (wide >= high) put(item, x, y + along, thick, long);
      else put(item, x + along, y, long, thick);
      along += long;
    }
    if (wide >= high) { x += thick; wide -= thick; } else { y += thick; high -= thick; }
    left -= sum;
    at = end;
  }
}

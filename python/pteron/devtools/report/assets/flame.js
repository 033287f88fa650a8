// Modules above their steps, as wide as what they take: in the order of the program, or the largest first.

class Flame {
  constructor() {
    this.order = "program";
    this.view = section("flame", "Flame view", "Modules above the steps in them, as wide as what they take.", [
      select("order", [["program", "of the program"], ["largest", "largest first"]], "program",
          (value) => { this.order = value; this.rebuild(); }),
      el("button", { onclick: () => this.canvas.reset() }, "Everything")]);
    this.boxes = [];
    this.total = 1;
    this.canvas = new ZoomCanvas(this.view.body, "Flame view", {
      draw: (...all) => this.draw(...all), mark: (...all) => this.mark(...all), hit: (x, y) => this.hit(x, y),
          height: () => (this.depth + 1) * 22 + 2, range: () => [0, this.total] });
    on("view", () => this.rebuild());
    on("selection", () => this.canvas.remark());
    on("search", () => this.canvas.redraw());
    this.rebuild();
  }
  rebuild() {
    const run = state.run;
    const plan = run.plan;
    this.boxes = [];
    this.depth = 0;
    let x = 0;
    if (this.order === "program") x = this.inOrder(run, plan);
    else {
      const weigh = (item) => item instanceof Module ? [...item.all()].reduce((sum, at) => sum + run.weight(at), 0)
          : run.weight(item);
      const visit = (module, depth, from) => {
        const items = [...module.children, ...module.nodes].map((item) => [item, weigh(item)])
            .sort((a, b) => b[1] - a[1]);
        for (const [item, width] of items) {
          const isModule = item instanceof Module;
          this.box(from, width, depth, isModule ? { module: item.path, label: item.name }
              : { step: item, label: plan.text("operator", item) });
          if (isModule) visit(item, depth + 1, from);
          from += width;
        }
        return from;
      };
      x = visit(moduleTree(plan), 0, 0);
    }
    this.total = x || 1;
    this.canvas.label(`Flame view of ${plural(plan.count,
        "step")} by ${run.weightName()}; arrow keys select the next step`);
    this.canvas.reset();
  }
  // Neighbours in the same module are one box; a module that is left and entered again has several.
  inOrder(run, plan) {
    let x = 0;
    let open = [];
    for (let at = 0; at < plan.count; at++) {
      const parts = plan.module(at) ? plan.module(at).split(".") : [];
      let same = 0;
      while (same < parts.length && same < open.length && open[same].label === parts[same]) same++;
      open = open.slice(0, same);
      for (let depth = same; depth < parts.length; depth++) {
        open.push(this.box(x, 0, depth, { module: parts.slice(0, depth + 1).join("."), label: parts[depth] }));
      }
      const width = run.weight(at);
      for (const box of open) box.width += width;
      this.box(x, width, parts.length, { step: at, label: plan.text("operator", at) });
      x += width;
    }
    return x;
  }
  box(x, width, depth, more) {
    const box = { x, width, depth, ...more };
    this.boxes.push(box);
    this.depth = Math.max(this.depth, depth);
    return box;
  }
  draw(context, width, height, colours) {
    const run = state.run;
    for (const box of this.boxes) {
      const from = this.canvas.x(box.x);
      const to = this.canvas.x(box.x + box.width);
      if (to < 0 || from > width || (to - from < 0.4 && box.module !== undefined)) continue;
      const isStep = box.module === undefined;
      const y = box.depth * 22 + 1;
      const colour = isStep ? stepColour(run, state.colouring, box.step) : colours.faint;
      context.globalAlpha = state.search && isStep && !matchesSearch(run, box.step) ? 0.25 : 1;
      context.fillStyle = colour;
      context.fillRect(from, y, Math.max(to - from - 0.6, 0.5), 20);
      context.globalAlpha = 1;
      const left = Math.max(from, 0);
      const room = Math.min(to, width) - left - 6;
      if (room > 16) drawLabel(context, box.label, left + 4, y + 10.5, room, isStep ? inkOn(colour) : colours.ink);
    }
  }
  mark(context, colours) {
    const chosen = state.selection?.in(state.run).steps;
    if (!chosen) return;
    context.strokeStyle = colours.mark;
    context.lineWidth = 2;
    for (const box of this.boxes) {
      if (box.module !== undefined ? state.selection.module !== box.module : !chosen.has(box.step)) continue;
      const from = this.canvas.x(box.x);
      const wide = this.canvas.x(box.x + box.width) - from - 0.6;
      context.strokeRect(from + 1, box.depth * 22 + 2, Math.max(wide - 2, 1), 18);
    }
  }
  hit(x, y) {
    const run = state.run;
    const value = this.canvas.value(x);
    const depth = Math.floor((y - 1) / 22);
    const box = this.boxes.find((one) => one.depth === depth && one.x <= value && value < one.x + one.width);
    if (!box) return null;
    const share = `${formatWeight(run, box.width)}, ${formatShare(box.width / this.total)}`;
    return {
      span: [box.x, box.x + box.width],
      choose: () => box.module === undefined ? chooseStep(run, box.step) : chooseModule(run, box.module),
      lines: () => box.module === undefined
        ? [`step ${box.step} ${box.label}`, share, run.kernel(box.step), run.plan.module(box.step),
            run.plan.text("line", box.step)]
        : [box.module, share],
    };
  }
}

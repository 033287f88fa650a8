// The arenas: steps to the right, offsets downwards, a rectangle for each lifetime; above them what is in use.

const STRIP = 56;

class MemoryMap {
  constructor() {
    this.view = section("memory", "Memory", "A rectangle is a tensor from the step that writes it to the last that reads it, at its offset in the arena. The line above is what is in use; the mark is its peak.", [
      layerSwitch(), el("button", { onclick: () => this.canvas.reset() }, "Everything")]);
    this.about = el("p", { class: "about" });
    this.view.body.append(this.about);
    this.canvas = new ZoomCanvas(this.view.body, "Memory map", {
      draw: (...all) => this.draw(...all), mark: (...all) => this.mark(...all), hit: (x, y) => this.hit(x, y),
          height: () => 320, range: () => [0, Math.max(this.layer.count, 1)] });
    on("view", () => this.rebuild());
    on("selection", () => this.follow());
    this.rebuild();
  }
  get layer() { return state.run.program.layer(state.layer); }
  rebuild() {
    const { layer } = this;
    const lives = layer.lifetimes;
    let base = 0;
    this.bases = layer.arenas.map((nbytes) => { const here = base; base += nbytes; return here; });
    this.total = base || 1;
    this.rectangles = [];
    lives.arena.forEach((arena, at) => {
      if (arena < 0 || !lives.bytes[at]) return;
      this.rectangles.push({ at, from: lives.first[at], to: lives.last[at] + 1, low: this.bases[arena]
          + lives.offset[at], nbytes: lives.bytes[at] });
    });
    this.peak = layer.live.reduce((most, value, at) => (value > layer.live[most] ? at : most), 0);
    const outside = lives.arena.reduce((count, arena) => count + (arena < 0), 0);
    const noun = layer.id === "plan" ? "step" : "instruction";
    const parts = layer.count ? [
      `${formatBytes(base)} planned in ${plural(layer.arenas.length, "arena")};`,
      `${formatBytes(layer.live[this.peak])} in use at the peak,`,
      `${noun} ${this.peak} (${layer.text("operator", this.peak)}).`,
      outside ? `${plural(outside, "tensor")} outside of the plan.` : "",
    ] : [];
    this.about.textContent = parts.join(" ");
    this.canvas.label(`Memory map: ${this.about.textContent} Arrow keys select the next step`);
    this.canvas.reset();
  }
  y(offset) { return STRIP + 8 + (offset / this.total) * (320 - STRIP - 12); }
  follow() {
    if (state.selection) {
      const chosen = [...state.selection.nodes(state.run, state.layer)];
      if (chosen.length) this.canvas.reveal(Math.min(...chosen), Math.max(...chosen) + 1);
    }
    this.canvas.remark();
  }
  // Where a rectangle is on the canvas.
  area(one) {
    const from = this.canvas.x(one.from);
    const y = this.y(one.low);
    return [from, y, Math.max(this.canvas.x(one.to) - from - 0.5, 0.6),
        Math.max(this.y(one.low + one.nbytes) - y - 0.5, 0.8)];
  }
  draw(context, width, height, colours) {
    const { layer } = this;
    this.strip(context, width, colours);
    for (const one of this.rectangles) {
      const [from, y, wide, high] = this.area(one);
      if (from + wide < 0 || from > width) continue;
      const writer = layer.lifetimes.writer[one.at];
      const colour = writer < 0 ? colours.line : nodeColour(state.run, state.colouring, layer, writer);
      context.fillStyle = colour;
      context.fillRect(from, y, wide, high);
      const left = Math.max(from, 0);
      const room = Math.min(from + wide, width) - left - 5;
      if (high > 12 && room > 16) drawLabel(context, layer.tensor(one.at), left + 3, y + high / 2, room,
          writer < 0 ? colours.ink : inkOn(colour));
    }
    context.fillStyle = colours.ink;
    for (const base of this.bases.slice(1)) context.fillRect(0, this.y(base) - 1, width, 1);
  }
  mark(context, colours) {
    const { layer, canvas } = this;
    const chosen = state.selection?.nodes(state.run, layer.id);
    if (!chosen) return;
    context.lineWidth = 2;
    context.strokeStyle = colours.mark;
    for (const one of this.rectangles) {
      const isWritten = chosen.has(layer.lifetimes.writer[one.at]);
      if (!isWritten && !layer.readers(one.at).some((at) => chosen.has(at))) continue;
      const [x, y, wide, high] = this.area(one);
      context.setLineDash(isWritten ? [] : [3, 2]);
      context.strokeRect(x + 1, y + 1, Math.max(wide - 2, 1), Math.max(high - 2, 1));
    }
    context.setLineDash([]);
    context.fillStyle = colours.mark;
    for (const at of chosen) context.fillRect(canvas.x(at), STRIP, Math.max(canvas.x(at + 1) - canvas.x(at), 1.5), 4);
  }
  strip(context, width, colours) {
    const { layer, canvas } = this;
    const top = Math.max(layer.live[this.peak] ?? 0, 1);
    context.fillStyle = colours.accent;
    const from = Math.max(0, Math.floor(canvas.view[0]));
    const to = Math.min(layer.count, Math.ceil(canvas.view[1]));
    for (let at = from; at < to; at++) {
      const high = (layer.live[at] / top) * (STRIP - 14);
      const x = canvas.x(at);
      context.fillRect(x, STRIP - high, Math.max(canvas.x(at + 1) - x, 0.5), high);
    }
    context.fillStyle = colours.mark;
    const x = canvas.x(this.peak + 0.5);
    context.fillRect(x - 0.75, 2, 1.5, 318);
    const text = `peak ${formatBytes(top)}`;
    context.fillStyle = colours.ink;
    context.fillText(text, x + 86 > width ? x - 84 : x + 5, 8);
  }
  hit(x, y) {
    const run = state.run;
    const { layer } = this;
    const value = this.canvas.value(x);
    if (y < STRIP) {
      const at = Math.floor(value);
      if (at < 0 || at >= layer.count) return null;
      return { choose: () => chooseNode(run, layer.id, at),
          lines: () => [`${layer.id === "plan" ? "step" : "instruction"} ${at} ${layer.text("operator", at)}`,
          `${formatBytes(layer.live[at])} in use`] };
    }
    const found = this.rectangles.filter((one) => one.from <= value && value < one.to && this.y(one.low) <= y
        && y <= this.y(one.low + one.nbytes)).at(-1);
    if (!found) return null;
    const writer = layer.lifetimes.writer[found.at];
    return {
      span: [found.from, found.to],
      choose: () => chooseLifetime(run, layer, found.at),
      lines: () => [layer.tensor(found.at), `${formatBytes(found.nbytes)} at ${layer.lifetimes.offset[found.at]} of arena ${layer.lifetimes.arena[found.at]}`,
        writer < 0 ? "there before the first step" : `written by ${writer} ${layer.text("operator", writer)}`,
        `in use from ${found.from} to ${found.to - 1}, read by ${layer.readers(found.at).slice(0, 8).join(", ")
            || "none"}`],
    };
  }
}

// When each step ran: a track for the thread that walks the steps, one for each thread that helps it, and one for what
// delegates say of their own steps.

// Where the tracks below the caller's begin, and the height of a helper's.
const BELOW_CALLER = 84;
const HELPER = 38;

class Timeline {
  constructor() {
    this.view = section("timeline", "Timeline", "When each step ran, in the thread that walks the steps, and when other threads helped with it.", [
      el("button", { onclick: () => this.canvas.reset() }, "Everything")]);
    this.none = el("p", { class: "about" }, "No times were measured.");
    this.view.body.append(this.none);
    this.canvas = new ZoomCanvas(this.view.body, "Timeline", {
      margin: 0, draw: (...all) => this.draw(...all), mark: (...all) => this.mark(...all),
          hit: (x, y) => this.hit(x, y), height: () => this.insideTop() + (this.inside?.length ? 48 : 0), range: () => [0, this.end ?? 1] });
    on("view", () => this.rebuild());
    on("selection", () => this.canvas.remark());
    on("search", () => this.canvas.redraw());
    this.rebuild();
  }
  rebuild() {
    this.spans = state.run.timeline ?? [];
    this.inside = state.run.inside ?? [];
    this.helpers = state.run.helpers ?? [];
    this.threads = this.helpers.reduce((most, [, thread]) => Math.max(most, thread), 0);
    this.end = this.spans.reduce((most, one) => Math.max(most, one[2]), 1);
    this.none.style.display = this.spans.length ? "none" : "block";
    this.canvas.canvas.style.display = this.spans.length ? "block" : "none";
    this.canvas.label(`Timeline of ${plural(this.spans.length,
        "run")} of steps over ${formatTime(this.end)}; arrow keys select the next step`);
    this.canvas.reset();
  }
  insideTop() {
    return BELOW_CALLER + (this.threads ?? 0) * HELPER;
  }
  draw(context, width, height, colours) {
    const run = state.run;
    this.axis(context, width, colours);
    context.fillStyle = colours.ink;
    context.fillText("calling thread", 4, 30);
    let last = -1;
    for (const [step, start, end] of this.spans) {
      const from = this.canvas.x(start);
      const to = this.canvas.x(end);
      if (to < 0) continue;
      if (from > width) break;
      // Several to a pixel: the first stands for all.
      if (to - from < 0.3 && to <= last) continue;
      last = Math.max(to, from + 0.5);
      const colour = stepColour(run, state.colouring, step);
      context.globalAlpha = state.search && !matchesSearch(run, step) ? 0.2 : 1;
      context.fillStyle = colour;
      context.fillRect(from, 40, Math.max(to - from - 0.4, 0.5), 34);
      context.globalAlpha = 1;
      const left = Math.max(from, 0);
      const room = Math.min(to, width) - left - 5;
      if (room > 16) drawLabel(context, run.plan.text("operator", step), left + 3, 57, room, inkOn(colour));
    }
    this.drawHelpers(context, width, colours);
    this.drawInside(context, width, colours);
  }
  drawHelpers(context, width, colours) {
    const lasts = [];
    for (let thread = 1; thread <= this.threads; thread++) {
      context.fillStyle = colours.ink;
      context.fillText(`helper ${thread}`, 4, BELOW_CALLER + (thread - 1) * HELPER + 6);
    }
    for (const [step, thread, start, end] of this.helpers) {
      const from = this.canvas.x(start);
      const to = this.canvas.x(end);
      if (to < 0 || from > width) continue;
      if (to - from < 0.3 && to <= (lasts[thread] ?? -1)) continue;
      lasts[thread] = Math.max(to, from + 0.5);
      context.fillStyle = stepColour(state.run, state.colouring, step);
      const top = BELOW_CALLER + (thread - 1) * HELPER + 14;
      context.fillRect(from, top, Math.max(to - from - 0.4, 0.5), HELPER - 18);
    }
  }
  // By the clock of the delegate, from the beginning of its step.
  drawInside(context, width, colours) {
    if (!this.inside.length) return;
    context.fillStyle = colours.ink;
    const top = this.insideTop();
    context.fillText("inside of delegates", 4, top + 6);
    for (const [step, start, end, label] of this.inside) {
      const from = this.canvas.x(start);
      const to = this.canvas.x(end);
      if (to < 0 || from > width) continue;
      const colour = stepColour(state.run, state.colouring, step);
      context.fillStyle = colour;
      context.fillRect(from, top + 14, Math.max(to - from - 0.4, 0.5), 26);
      const room = Math.min(to, width) - Math.max(from, 0) - 5;
      if (room > 16) drawLabel(context, label, Math.max(from, 0) + 3, top + 27, room, inkOn(colour));
    }
  }
  mark(context, colours, width) {
    const chosen = state.selection?.in(state.run).steps;
    if (!chosen) return;
    context.fillStyle = colours.mark;
    for (const [step, start, end] of this.spans) {
      if (!chosen.has(step)) continue;
      const from = this.canvas.x(start);
      const wide = Math.max(this.canvas.x(end) - from, 1.5);
      if (from > width || from + wide < 0) continue;
      context.fillRect(from, 36, wide, 3);
      context.fillRect(from, 75, wide, 3);
    }
  }
  axis(context, width, colours) {
    const span = this.canvas.view[1] - this.canvas.view[0];
    const rough = span / Math.max(width / 110, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
    context.fillStyle = colours.ink;
    for (let at = Math.ceil(this.canvas.view[0] / step) * step; at <= this.canvas.view[1]; at += step) {
      const x = this.canvas.x(at);
      context.fillStyle = colours.line;
      context.fillRect(x, 0, 1, 80);
      context.fillStyle = colours.ink;
      context.fillText(formatTime(at), x + 3, 9);
    }
  }
  hitHelper(value, y) {
    const thread = Math.floor((y - BELOW_CALLER) / HELPER) + 1;
    const found = this.helpers.find(([, of, start, end]) => of === thread && start <= value && value <= end);
    if (!found) return null;
    const [step, , start, end] = found;
    const lines = [`helper ${thread}: ${formatTime(end - start)}`, `step ${step} ${state.run.plan.text("operator", step)}`];
    return { span: [start, end], choose: () => chooseStep(state.run, step), lines: () => lines };
  }
  hitInside(value) {
    const found = this.inside.find(([, start, end]) => start <= value && value <= end);
    if (!found) return null;
    const [step, start, end, label] = found;
    const lines = [label, formatTime(end - start), `inside of step ${step} ${state.run.plan.text("operator", step)}`];
    return { span: [start, end], choose: () => chooseStep(state.run, step), lines: () => lines };
  }
  hit(x, y) {
    const value = this.canvas.value(x);
    if (y >= this.insideTop()) return this.hitInside(value);
    if (y >= BELOW_CALLER) return this.hitHelper(value, y);
    if (y < 36 || y > 80) return null;
    let low = 0;
    let high = this.spans.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.spans[middle][1] <= value) low = middle; else high = middle - 1;
    }
    const found = this.spans[low];
    if (!found || found[1] > value || found[2] < value) return null;
    const [step, start, end] = found;
    const run = state.run;
    return {
      span: [start, end],
      choose: () => chooseStep(run, step),
      lines: () => [`step ${step} ${run.plan.text("operator", step)}`,
          `${formatTime(end - start)} from ${formatTime(start)}`, run.kernel(step), run.plan.module(step)],
    };
  }
}

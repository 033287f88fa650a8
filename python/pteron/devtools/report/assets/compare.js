// Two runs or programs beside each other: times and errors of steps that are the same in both, and the other graph.

class Compare {
  constructor() {
    this.other = RUNS[RUNS.length > 1 ? 1 : 0];
    this.view = section("compare", "Comparison", "Steps with the same module, operator and order are the same step. The run of all other views is shown by a filled dot, the other one by a ring.", [
      RUNS.length > 1 ? select("with", RUNS.map((run) => [String(run.index), run.title]), String(this.other.index),
          (value) => { this.other = RUNS[value]; this.rebuild(); this.pane?.rebuild(); }) : null,
      RUNS.length > 1 ? this.columnSwitch() : null].filter(Boolean));
    this.sums = el("div");
    this.chart = el("div", { class: "chart" });
    this.errors = el("div", { class: "chart" });
    this.view.body.append(this.sums, this.chart, this.errors);
    if (PROGRAMS.length > 1) {
      this.view.body.append(el("h3", {}, "Graph of the other program"));
      this.pane = new GraphPane(this.view.body, () => this.other, "Graph of the other program");
    }
    on("view", () => this.rebuild());
    on("selection", () => this.follow());
    this.rebuild();
  }
  columnSwitch() {
    const timed = RUNS.filter((run) => run.isMeasured).length > 1;
    this.column = timed && this.other.isMeasured ? "ns" : "bytes";
    return select("by", [timed ? ["ns", "time"] : null, ["bytes", "bytes"], ["flops", "operations"]].filter(Boolean),
        this.column, (value) => { this.column = value; this.rebuild(); });
  }
  value(run, step) {
    if (step === undefined) return null;
    return this.column === "ns" ? (run.isMeasured ? run.ns[step] : null) : run.plan[this.column][step];
  }
  rebuild() {
    const run = state.run;
    this.errorChart(run);
    if (RUNS.length > 1) this.match(run);
    this.follow();
  }
  // The steps of both, the largest difference first.
  match(run) {
    const { other } = this;
    const rows = [];
    run.plan.key.forEach((key, at) => rows.push([at, other.plan.byKey.get(key)]));
    other.plan.key.forEach((key, at) => { if (!run.plan.byKey.has(key)) rows.push([undefined, at]); });
    this.format = { ns: formatTime, bytes: formatBytes, flops: formatFlops }[this.column];
    this.pairs = rows.map(([a, b]) => ({ a, b, x: this.value(run, a), y: this.value(other, b) }))
      .filter(({ x, y }) => x !== null || y !== null)
      .sort((p, q) => Math.abs((q.x ?? 0) - (q.y ?? 0)) - Math.abs((p.x ?? 0) - (p.y ?? 0)));
    this.totals(run, other);
  }
  totals(run, other) {
    const { pairs, format } = this;
    const sum = (side) => pairs.reduce((total, pair) => total + (pair[side] ?? 0), 0);
    const alone = (side, against) => pairs.filter((pair) => pair[side] !== undefined
        && pair[against] === undefined).length;
    const row = (name, a, b) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, a), el("td", {}, b));
    const call = (one) => one.isMeasured ? formatTime(one.call) : "not measured";
    show(this.sums, el("table", { class: "plain" },
      el("thead", {}, el("tr", {}, el("th", {}, ""), el("th", { scope: "col" }, run.title),
          el("th", { scope: "col" }, other.title))),
      el("tbody", {}, row("a call", call(run), call(other)), row("sum of steps", format(sum("x")), format(sum("y"))),
        row("steps", String(run.plan.count), String(other.plan.count)),
            row("steps of this one alone", String(alone("a", "b")), String(alone("b", "a"))),
        row("memory of a session", formatBytes(run.program.session_bytes), formatBytes(other.program.session_bytes)),
        row("file", formatBytes(run.program.sizes.file), formatBytes(other.program.sizes.file)))));
  }
  dumbbells(run, other, pairs) {
    const { format } = this;
    const wide = 860;
    const from = 300;
    const most = Math.max(1e-9, ...pairs.flatMap(({ x, y }) => [x ?? 0, y ?? 0]));
    const place = (value) => from + (value / most) * (wide - from - 130);
    const rows = pairs.map(({ a, b, x, y }, at) => {
      const plan = a !== undefined ? run.plan : other.plan;
      const step = a ?? b;
      const isMarked = a !== undefined ? isChosen(run, a) : isChosen(other, b);
      const label = `${plan.module(step) || "(not known)"} · ${plan.text("operator", step)}`;
      const middle = 24 + at * 20;
      const name = (value) => value === null ? "not measured" : format(value);
      const text = a === undefined ? "only in the other" : b === undefined ? "only in this one"
          : `${name(x)} → ${name(y)}`;
      const pick = () => (a !== undefined ? chooseStep(run, a) : chooseStep(other, b));
      return svg("g", {
        class: isMarked ? "pair selected" : "pair", role: "button", tabindex: 0, "aria-label": `${label}: ${text}`,
        onclick: pick, onkeydown: (event) => { if (event.key === "Enter") pick(); },
      },
      svg("rect", { x: 0, y: middle - 10, width: wide, height: 20, class: "back" }),
      svg("text", { x: from - 8, y: middle + 4, "text-anchor": "end" }, clipPath(label, 46)),
      x !== null && y !== null ? svg("line", { x1: place(x), x2: place(y), y1: middle, y2: middle,
          class: x < y ? "slower" : "faster" }) : null,
      x !== null ? svg("circle", { cx: place(x), cy: middle, r: 5, class: "ours" }) : null,
      y !== null ? svg("circle", { cx: place(y), cy: middle, r: 5, class: "theirs" }) : null,
      svg("text", { x: wide - 4, y: middle + 4, "text-anchor": "end", class: "more" }, text));
    });
    const count = `${pairs.length} of ${plural(this.pairs.length, "step")}`;
    show(this.chart, el("h3", {}, `Largest differences (${count})`), svg("svg", {
      viewBox: `0 0 ${wide} ${24 + pairs.length * 20}`, class: "dumbbells", role: "group", "aria-label": "Differences of steps",
    }, rows));
  }
  // Errors on a logarithmic axis, in the order of steps: where they begin is what matters.
  errorChart(run) {
    this.dots = new Map();
    if (!run.errors) {
      show(this.errors);
      return;
    }
    const [wide, high] = [860, 190];
    const x = (step) => 50 + ((step + 0.5) / run.plan.count) * (wide - 60);
    const y = (error) => 10 + (high - 40) * (1 - (Math.log10(Math.max(1e-9, Math.min(error, 10))) + 9) / 10);
    run.errors.forEach((error, step) => {
      if (error === null) return;
      const label = `step ${step} ${run.plan.text("operator", step)}`;
      this.dots.set(step, svg("circle", {
        cx: x(step), cy: y(error), r: 3, class: "error", role: "button", "aria-label": `${label}: error ${formatError(error)}`,
        onclick: () => chooseStep(run, step), onpointerleave: () => tooltip.hide(),
        onpointermove: (event) => tooltip.show(event, [label, formatError(error), run.plan.module(step)]),
      }));
    });
    const lines = [-9, -7, -5, -3, -1, 1].map((power) => [
      svg("line", { x1: 50, x2: wide - 10, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }),
      svg("text", { x: 44, y: y(10 ** power) + 4, "text-anchor": "end", class: "more" }, `1e${power}`),
    ]);
    const axis = svg("text", { x: wide / 2, y: high - 6, "text-anchor": "middle", class: "more" }, "step");
    show(this.errors, el("h3", {}, "Relative error of each compared step"),
      svg("svg", { viewBox: `0 0 ${wide} ${high}`, class: "errors", role: "group", "aria-label": "Errors of steps" },
        lines, [...this.dots.values()], axis));
  }
  follow() {
    for (const [step, dot] of this.dots) {
      const isMarked = isChosen(state.run, step);
      dot.classList.toggle("selected", isMarked);
      dot.setAttribute("r", isMarked ? 6 : 3);
    }
    if (this.pairs) this.dumbbells(state.run, this.other, this.pairs.slice(0, 30));
  }
}

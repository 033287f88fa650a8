// What matters in a few figures and sentences, and what the selection is.

function summaryView() {
  const view = section("summary", "Summary", "What the program is, what a call takes, and where to look first.");
  const draw = () => {
    const run = state.run;
    const program = run.program;
    const size = program.sizes;
    const tiles = [
      run.isMeasured ? ["time of a call", formatTime(run.call),
        `p90 ${formatTime(percentile(run.calls, 0.9))}, p99 ${formatTime(percentile(run.calls,
            0.99))}; ${plural(run.calls.length, "call")}, ${plural(run.threads, "thread")}`]
        : ["time of a call", "not measured", "pteron report --runs 20, or --profile saved.json"],
      ["memory of a session", formatBytes(program.session_bytes),
          `${formatBytes(Math.max(0, ...program.plan.live))} in use at the peak`],
      ["file", formatBytes(size.file), Object.entries(size).filter(([name, value]) => name !== "file" && value)
        .sort((a, b) => b[1] - a[1]).slice(0, 3).map(([name,
            value]) => `${formatBytes(value)} ${name.slice(3)}`).join(", ")],
      ["steps", String(program.plan.count), `of ${plural(program.file.count, "instruction")} in the file`],
    ];
    const said = [...run.advice, ...program.advice];
    show(view.body, 
      el("div", { class: "tiles" }, tiles.map(([name, value, more]) =>
        el("div", { class: "tile" }, el("span", {}, name), el("strong", {}, value), el("small", {}, more)))),
      el("ul", { class: "advice" }, said.map((text) => el("li", {}, text))),
      el("dl", { class: "facts" }, [
        ["program", program.name], ["method", program.methods.length > 1
          ? `${program.method} (the file has ${program.methods.join(", ")})` : program.method],
        ["inputs", program.inputs.join("; ") || "none"], ["outputs", program.outputs.join("; ") || "none"],
        ["backends", program.backends.join(", ") || "none"], ["made by", `pteron ${program.version}`],
      ].map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
  };
  on("view", draw);
  draw();
}

// The panel beside all views.
function detailsView() {
  const panel = el("aside", { id: "details", "aria-live": "polite", "aria-label": "Selection" });
  document.querySelector(".page").append(panel);
  const draw = () => {
    const { selection, run } = state;
    if (!selection) {
      show(panel, el("h2", {}, "Selection"),
        el("p", { class: "about" }, "Nothing is selected. Click a module, step, tensor or weight in any view: every view shows it."),
        el("dl", { class: "keys" }, [["/", "search"], ["← →", "step before, step after"],
            ["+ − 0", "zoom in, zoom out, everything"],
          ["Shift or Ctrl + wheel", "zoom"], ["Esc", "select nothing"], ["1 … 9", "run or program"]]
          .map(([key, text]) => [el("dt", {}, key), el("dd", {}, text)])));
      return;
    }
    const chosen = [...selection.in(run).steps].sort((a, b) => a - b);
    const sum = run.sum(chosen);
    const { whole } = run;
    const facts = [];
    if (run.isMeasured) facts.push(["time", `${formatTime(sum.ns)}, ${formatShare(sum.ns / (whole.ns || 1))}`]);
    if (sum.ceiling !== null) facts.push(["of the ceiling", formatShare(sum.ceiling)]);
    if (run.isMeasured && sum.ns) facts.push(["rate",
        `${(sum.flops / sum.ns).toPrecision(3)} GFLOP/s, ${(sum.bytes / sum.ns).toPrecision(3)} GB/s`]);
    facts.push(["bytes moved", formatBytes(sum.bytes)], ["operations", `${formatFlops(sum.flops)}FLOP`]);
    if (sum.error !== null) facts.push(["largest error", formatError(sum.error)]);
    show(panel, 
      el("h2", {}, selection.title),
      el("p", { class: "about" }, `${plural(chosen.length, "step")}, ${plural(selection.in(run).instructions.size,
          "instruction")} in ${run.title}`),
      el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      chosen.slice(0, 6).map((step) => stepCard(run, step)),
      chosen.length > 6 ? el("p", { class: "about" }, `and ${chosen.length - 6} more`) : null);
  };
  on("selection", draw);
  on("view", draw);
  draw();
}

function stepCard(run, step) {
  const plan = run.plan;
  const module = plan.module(step);
  const covered = plan.instructions[step];
  const link = (path) => el("button", { class: "link", onclick: () => chooseModule(run, path) }, path);
  const written = plan.lifetimes.writer.map((writer, at) => writer === step ? at : -1).filter((at) => at >= 0);
  const facts = [
    ["operator", plan.text("operator", step)], ["kernel", run.kernel(step)], ["backend", plan.text("backend", step)],
    ["module", module && link(module)], ["line", plan.text("line", step)],
    ["time", run.isMeasured && formatTime(run.ns[step])],
    ["reads", plan.reads[step].map((at) => plan.tensor(at)).join("; ")],
        ["writes", written.map((at) => plan.tensor(at)).join("; ")],
    ["stands for", covered.length > 1 && covered.map((at) => `${at} ${run.program.file.text("operator",
        at)}`).join("; ")],
    ["inside", run.events && [...new Set(run.events.filter((event) => event[0] === step)
      .map(([, id, ns, where]) => `${id} ${where} ${formatTime(ns)}`))].slice(0, 12).join("; ")],
  ].filter(([, value]) => value);
  return el("article", {}, el("h3", {}, `step ${step}`),
    el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}

// The page around the views: choices for all of them, search, theme, printing.

function header() {
  const redraw = () => emit("view");
  const runs = RUNS.length > 1
    ? select("run", RUNS.map((run) => [String(run.index), run.title]), "0",
        (value) => { state.run = RUNS[value]; redraw(); }) : el("strong", {}, RUNS[0].title);
  const colours = select("colour", COLOURINGS.filter(([id]) => (id !== "time" || RUNS.some((run) => run.isMeasured))
      && (id !== "error" || RUNS.some((run) => run.errors))),
    state.colouring, (value) => { state.colouring = value; redraw(); });
  const search = el("input", { type: "search", placeholder: "operator, module, kernel, line",
      "aria-label": "Search steps", oninput: (event) => {
    state.search = event.target.value.trim().toLowerCase();
    emit("search");
  } });
  const themes = el("button", { "aria-label": "Light or dark", title: "Light or dark", onclick: () => {
    theme.chosen = theme.name === "dark" ? "light" : "dark";
    theme.update();
    redraw();
  } }, "◐");
  const scale = el("span", { id: "legend" });
  on("view", () => show(scale, legend(state.run, state.colouring)));
  const links = el("nav", { "aria-label": "Views" });
  document.body.prepend(el("header", { role: "banner" }, el("span", { class: "brand" }, "pteron report"), runs,
      colours, scale, search, themes, links));
  return { search, links, runs };
}

function main() {
  document.querySelector("noscript")?.remove();
  document.title = `${RUNS[0].program.name} · pteron report`;
  document.body.append(el("div", { class: "page" }, el("main")));
  const { search, links, runs } = header();
  summaryView();
  const table = new TreeTable();
  new Flame();
  new Timeline();
  graphView();
  new MemoryMap();
  new Treemap();
  if (RUNS.length > 1 || RUNS.some((run) => run.errors)) new Compare();
  detailsView();
  for (const one of document.querySelectorAll("main > section")) {
    links.append(el("a", { href: `#${one.id}` }, one.querySelector("h2").textContent));
  }
  emit("view");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { theme.update(); emit("view"); });
  addEventListener("beforeprint", () => print(true, table));
  addEventListener("afterprint", () => print(false, table));
  addEventListener("keydown", (event) => {
    if (event.target.closest("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); search.focus(); }
    if (event.key === "Escape") choose(null);
    const run = RUNS[Number(event.key) - 1];
    if (run && RUNS.length > 1) { state.run = run; runs.querySelector("select").value = String(run.index);
        emit("view"); }
  });
  document.documentElement.dataset.ready = "true";
}

// On paper: light colours, all rows of the table that are open, all boxes of the graph, labels as wide as letters are.
function print(isPrinting, table) {
  theme.isPrinting = isPrinting;
  theme.update();
  document.documentElement.toggleAttribute("data-paper", isPrinting);
  emit("view");
  for (const one of PANES) one.print(isPrinting);
  for (const one of CANVASES) { one.isStale = true; one.paint(); }
  if (isPrinting) table.paint(true);
}

main();

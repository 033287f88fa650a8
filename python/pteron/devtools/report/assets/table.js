// Modules and their steps as a tree of rows with sums. Only the rows in sight are elements.

const ROW = 24;

class TreeTable {
  constructor() {
    this.open = new Set();
    this.sort = { column: null, down: true };
    this.start = 0;
    this.cursor = 0;
    this.view = section("modules", "Modules", "Sums of every module and its steps. Times of a fused step count for the part with most operations.", [
      el("button", { onclick: () => this.openAll(true) }, "Open all"),
          el("button", { onclick: () => this.openAll(false) }, "Close all"),
      el("button", { onclick: () => this.save() }, "Save as CSV")]);
    this.head = el("div", { class: "row head-row", role: "row" });
    this.rows = el("div", { class: "rows", role: "rowgroup" });
    this.scroll = el("div", { class: "scroll", tabindex: 0, role: "treegrid", "aria-label": "Modules and steps",
        onscroll: () => this.paint(),
      onkeydown: (event) => this.key(event) }, el("div", { role: "rowgroup", class: "head-group" }, this.head),
          this.rows);
    this.view.body.append(this.scroll);
    on("view", () => this.rebuild());
    on("selection", () => this.follow());
    on("search", () => this.rebuild());
    this.rebuild();
  }
  columns() {
    const run = state.run;
    const whole = this.whole;
    const timed = run.isMeasured;
    return [
      timed && ["time", (sum) => sum.ns, (sum) => formatTime(sum.ns)],
      timed && ["share", (sum) => sum.ns, (sum) => formatShare(sum.ns / (whole.ns || 1))],
      ["calls", (sum) => sum.calls, (sum) => String(Number(sum.calls.toFixed(2)))],
      ["bytes", (sum) => sum.bytes, (sum) => formatBytes(sum.bytes)],
      ["FLOP", (sum) => sum.flops, (sum) => formatFlops(sum.flops)],
      timed && ["GFLOP/s", (sum) => sum.flops / (sum.ns || 1),
          (sum) => (sum.ns ? (sum.flops / sum.ns).toFixed(1) : "")],
      timed && ["GB/s", (sum) => sum.bytes / (sum.ns || 1), (sum) => (sum.ns ? (sum.bytes / sum.ns).toFixed(1) : "")],
      timed && run.ceiling && ["of ceiling", (sum) => sum.ceiling ?? 0, (sum) => sum.ceiling === null ? ""
          : formatShare(sum.ceiling)],
      run.errors && ["error", (sum) => sum.error ?? -1, (sum) => formatError(sum.error)],
    ].filter(Boolean);
  }
  rebuild(isPainted = true) {
    const run = state.run;
    if (this.shown !== run) {
      this.shown = run;
      this.tree = moduleTree(run.plan);
      this.whole = run.whole;
      for (const top of this.tree.children) this.open.add(top.path);
      this.sums = new Map();
    }
    const columns = this.columns();
    if (!columns.some(([name]) => name === this.sort.column)) this.sort.column = null;
    show(this.head, ["module or step", ...columns.map(([name]) => name), "kernel"]
        .map((name, at) => this.heading(name, at)));
    this.flat = [];
    this.collect(this.tree, 0);
    this.scroll.setAttribute("aria-rowcount", this.flat.length + 1);
    this.rows.style.height = `${this.flat.length * ROW}px`;
    this.scroll.style.height = `${Math.max(5, Math.min(17, this.flat.length + 1.5)) * ROW}px`;
    this.scroll.style.setProperty("--columns", columns.length);
    if (isPainted) this.paint();
  }
  heading(name, at) {
    const isNumber = at > 0 && name !== "kernel";
    const isSorted = this.sort.column === name;
    return el("span", { role: "columnheader", class: isNumber ? "number" : "", "aria-sort": isSorted
        ? (this.sort.down ? "descending" : "ascending") : "none" },
      name === "kernel" ? name : el("button", { onclick: () => this.sortBy(at ? name : null) },
          name + (isSorted ? (this.sort.down ? " ↓" : " ↑") : "")));
  }
  sortBy(column) {
    this.sort = { column, down: column === this.sort.column ? !this.sort.down : true };
    this.rebuild();
  }
  sumOf(item) {
    const key = item instanceof Module ? item.path : item;
    if (!this.sums.has(key)) this.sums.set(key, state.run.sum(item instanceof Module ? item.all() : [item]));
    return this.sums.get(key);
  }
  collect(module, depth) {
    let items = [...module.children, ...module.nodes];
    if (this.sort.column) {
      const value = this.columns().find(([name]) => name === this.sort.column)[1];
      const order = this.sort.down ? -1 : 1;
      items.sort((a, b) => order * (value(this.sumOf(a)) - value(this.sumOf(b))));
    } else {
      const first = (item) => item instanceof Module ? (item.first ??= Math.min(...item.all())) : item;
      items.sort((a, b) => first(a) - first(b));
    }
    for (const item of items) {
      const isModule = item instanceof Module;
      if (state.search && !this.isFound(item)) continue;
      const isOpen = isModule && (this.open.has(item.path) || Boolean(state.search));
      this.flat.push({ item, depth, isModule, isOpen });
      if (isOpen) this.collect(item, depth + 1);
    }
  }
  isFound(item) {
    if (!(item instanceof Module)) return matchesSearch(state.run, item);
    for (const step of item.all()) if (matchesSearch(state.run, step)) return true;
    return false;
  }
  openAll(all) {
    this.open.clear();
    const visit = (module) => { for (const one of module.children) { this.open.add(one.path); visit(one); } };
    if (all) visit(this.tree);
    this.rebuild();
  }
  paint(all = false) {
    const from = all ? 0 : Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - 10);
    const to = all ? Math.min(this.flat.length, 400)
        : Math.min(this.flat.length, from + Math.ceil((this.scroll.clientHeight || 400) / ROW) + 20);
    const columns = this.columns();
    show(this.rows, this.flat.slice(from, to).map((row, at) => this.row(row, from + at, columns)));
    const cursor = this.rows.querySelector(".cursor");
    if (cursor) this.scroll.setAttribute("aria-activedescendant", cursor.id);
  }
  row({ item, depth, isModule, isOpen }, at, columns) {
    const run = state.run;
    const sum = this.sumOf(item);
    const steps = isModule ? null : item;
    const isSelected = isModule ? state.selection?.module === item.path : isChosen(run, steps);
    const name = isModule ? item.name : `${item} ${run.plan.text("operator", item)}`;
    const share = run.isMeasured ? sum.ns / (this.whole.ns || 1) : sum.bytes / (this.whole.bytes || 1);
    const toggle = isModule ? el("span", { class: "toggle", "aria-hidden": "true",
        onclick: (event) => { event.stopPropagation(); this.toggle(at); } }, isOpen ? "▾" : "▸") : null;
    return el("div", {
      class: `row${isSelected ? " selected" : ""}${at === this.cursor ? " cursor" : ""}`, role: "row",
          id: `row-${at}`, "aria-level": depth + 1,
      "aria-rowindex": at + 2, "aria-expanded": isModule ? String(isOpen) : null,
          "aria-selected": String(Boolean(isSelected)), style: { top: `${at * ROW}px` },
      onclick: () => { this.cursor = at; this.pick(at); }, ondblclick: () => this.toggle(at),
    },
    el("span", { role: "gridcell", class: isModule ? "name module" : "name", title: isModule ? item.path : name,
        style: { "padding-left": `${8 + depth * 14}px` } },
      el("i", { class: "bar", style: { width: `${(100 * share).toFixed(2)}%` } }), toggle, el("span", {}, name)),
    columns.map(([, , text]) => el("span", { role: "gridcell", class: "number" }, text(sum))),
    el("span", { role: "gridcell", class: "kernel" }, isModule ? "" : run.kernel(item)));
  }
  pick(at) {
    const { item, isModule } = this.flat[at];
    if (isModule) chooseModule(state.run, item.path); else chooseStep(state.run, item);
  }
  toggle(at) {
    const { item, isModule } = this.flat[at];
    if (!isModule) return;
    if (!this.open.delete(item.path)) this.open.add(item.path);
    this.rebuild();
  }
  // Opens what holds the selection, and scrolls to it.
  follow() {
    const { selection, run } = state;
    if (selection) {
      const chosen = [...selection.in(run).steps];
      const path = selection.module ?? (chosen.length ? run.plan.module(Math.min(...chosen)) : "");
      const parts = path ? path.split(".") : [];
      const least = selection.module !== null ? parts.length - 1 : parts.length;
      for (let length = 1; length <= least; length++) this.open.add(parts.slice(0, length).join("."));
      this.rebuild(false);
      const wanted = this.flat.findIndex(({ item, isModule }) =>
        selection.module !== null ? isModule && item.path === selection.module : !isModule
            && selection.in(run).steps.has(item));
      if (wanted >= 0) {
        this.cursor = wanted;
        const top = wanted * ROW;
        if (top < this.scroll.scrollTop || top > this.scroll.scrollTop + this.scroll.clientHeight - 3 * ROW) {
          this.scroll.scrollTop = Math.max(0, top - this.scroll.clientHeight / 2);
        }
      }
    }
    this.paint();
  }
  key(event) {
    const row = this.flat[this.cursor];
    const go = (at) => { this.cursor = Math.max(0, Math.min(this.flat.length - 1, at)); this.pick(this.cursor); };
    const actions = {
      ArrowDown: () => go(this.cursor + 1),
      ArrowUp: () => go(this.cursor - 1),
      Home: () => go(0),
      End: () => go(this.flat.length - 1),
      ArrowRight: () => { if (row?.isModule && !row.isOpen) this.toggle(this.cursor); else go(this.cursor + 1); },
      ArrowLeft: () => { if (row?.isModule && row.isOpen) this.toggle(this.cursor);
          else go(this.parent(this.cursor)); },
      Enter: () => this.toggle(this.cursor),
      Escape: () => choose(null),
    };
    if (!actions[event.key] || event.target !== this.scroll || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }
  parent(at) {
    let above = at - 1;
    while (above > 0 && this.flat[above].depth >= this.flat[at].depth) above--;
    return Math.max(above, 0);
  }
  save() {
    const columns = [["ns", (sum) => sum.ns], ["calls", (sum) => sum.calls], ["bytes", (sum) => sum.bytes],
        ["flops", (sum) => sum.flops]];
    // A text that a spreadsheet would take for a formula begins with an apostrophe.
    const plain = (text) => (/^[=+\-@]/.test(text) ? `'${text}` : text);
    const quote = (text) => (/[",\n\r]/.test(text) ? `"${plain(text).replaceAll('"', '""')}"` : plain(text));
    const lines = [["name", ...columns.map(([name]) => name), "kernel"].join(",")];
    const steps = [...this.tree.all()].sort((a, b) => a - b);
    for (const step of steps) {
      const name = `${step} ${state.run.plan.text("operator", step)} (${state.run.plan.module(step)})`;
      lines.push([quote(name), ...columns.map(([, value]) => value(this.sumOf(step))),
          quote(state.run.kernel(step))].join(","));
    }
    const url = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
    el("a", { href: url, download: "report.csv" }).click();
    URL.revokeObjectURL(url);
  }
}

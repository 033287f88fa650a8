// Programs and runs of the page's data as objects. Texts are strings of the file: they become text nodes, never markup.

// Characters without a shape, and those that turn the direction of what follows, are shown by number.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const escaped = (text) => text.replace(HIDDEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
function shownTexts(value) {
  if (typeof value === "string") return escaped(value);
  if (Array.isArray(value)) return typeof value[0] === "number" && typeof value[1] !== "string" ? value
      : value.map(shownTexts);
  if (value && typeof value === "object") for (const name of Object.keys(value)) value[name] = shownTexts(value[name]);
  return value;
}

const DATA = shownTexts(JSON.parse(document.getElementById("data").textContent));
const TEXTS = DATA.texts;

class Layer {
  constructor(data, program, id) {
    Object.assign(this, data);
    this.id = id;
    this.program = program;
    this.count = data.name.length;
    // By the key that the same node has in every program, and for each instruction of the file the nodes of it.
    this.byKey = new Map(data.key.map((key, at) => [key, at]));
    this.byInstruction = new Map();
    data.instructions.forEach((list, at) => {
      for (const one of list) {
        if (!this.byInstruction.has(one)) this.byInstruction.set(one, []);
        this.byInstruction.get(one).push(at);
      }
    });
  }
  text(column, at) { return TEXTS[this[column][at]]; }
  module(at) { return TEXTS[this.modules[at]]; }
  // What a lifetime is called: its name where the file has one, else its type.
  tensor(at) {
    const name = TEXTS[this.lifetimes.name[at]];
    return name ? `${name} ${TEXTS[this.lifetimes.text[at]]}` : TEXTS[this.lifetimes.text[at]];
  }
  readers(lifetime) {
    if (!this.readersOf) {
      this.readersOf = this.lifetimes.writer.map(() => []);
      this.reads.forEach((list, at) => { for (const one of list) this.readersOf[one].push(at); });
    }
    return this.readersOf[lifetime];
  }
}

class Program {
  constructor(data, at) {
    Object.assign(this, data);
    this.index = at;
    this.file = new Layer(data.layers.file, this, "file");
    this.plan = new Layer(data.layers.plan, this, "plan");
  }
  layer(id) { return id === "file" ? this.file : this.plan; }
}

class Run {
  constructor(data, at) {
    Object.assign(this, data);
    this.index = at;
    this.program = PROGRAMS[data.program];
    this.plan = this.program.plan;
    this.isMeasured = Boolean(data.ns);
    this.total = this.isMeasured ? data.ns.reduce((a, b) => a + b, 0) : 0;
    this.call = this.isMeasured ? median(data.calls) : 0;
    const name = this.program.method === "forward" ? this.program.name
        : `${this.program.name} ${this.program.method}`;
    this.title = data.label ? `${name} · ${data.label}` : name;
  }
  kernel(step) { return this.kernels ? TEXTS[this.kernels[step]] : this.plan.text("name", step); }
  // Sums over steps: what every view shows of a group.
  sum(steps) {
    const out = { ns: 0, flops: 0, bytes: 0, calls: 0, error: null, least: 0 };
    // Operations and bytes per nanosecond that the machine of the run can do at most.
    const most = this.ceiling ?? null;
    for (const at of steps) {
      const times = this.isMeasured ? this.times[at] : 1;
      if (this.isMeasured) out.ns += this.ns[at];
      out.flops += this.plan.flops[at] * times;
      out.bytes += this.plan.bytes[at] * times;
      out.calls += times;
      if (most) out.least += times * Math.max(this.plan.flops[at] / most[0], this.plan.bytes[at] / most[1]);
      const error = this.errors ? this.errors[at] : null;
      if (error !== null) out.error = Math.max(out.error ?? 0, error);
    }
    out.ceiling = most && out.ns ? out.least / out.ns : null;
    return out;
  }
  get whole() { return (this.all ??= this.sum(this.plan.operator.keys())); }
  // The quantity that areas and widths stand for.
  weight(step) {
    if (this.isMeasured) return this.ns[step];
    return this.weightName() === "operations" ? this.plan.flops[step] : this.plan.bytes[step];
  }
  weightName() {
    if (this.isMeasured) return "time";
    this.hasFlops ??= this.plan.flops.some((value) => value > 0);
    return this.hasFlops ? "operations" : "bytes";
  }
}

// A module with the modules and nodes in it, in the order of the program.
class Module {
  constructor(path, name, parent) {
    Object.assign(this, { path, name, parent, children: [], nodes: [], byName: new Map() });
    this.depth = parent ? parent.depth + 1 : -1;
  }
  child(name) {
    let found = this.byName.get(name);
    if (!found) {
      found = new Module(this.path ? `${this.path}.${name}` : name, name, this);
      this.byName.set(name, found);
      this.children.push(found);
    }
    return found;
  }
  *all() {
    yield* this.nodes;
    for (const one of this.children) yield* one.all();
  }
}

function moduleTree(layer, moduleOf = (at) => layer.module(at)) {
  const root = new Module("", "", null);
  for (let at = 0; at < layer.count; at++) {
    let here = root;
    const path = moduleOf(at);
    if (path) for (const part of path.split(".")) here = here.child(part);
    here.nodes.push(at);
  }
  return root;
}

function isInside(path, module) { return path === module || path.startsWith(`${module}.`); }

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  if (!sorted.length) return 0;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function percentile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? 0;
}

const PROGRAMS = DATA.programs.map((data, at) => new Program(data, at));
const RUNS = DATA.runs.map((data, at) => new Run(data, at));

// --- numbers as text --------------------------------------------------------------------------------------------

function scaled(value, units, digits = 3) {
  let at = 0;
  while (Math.abs(value) >= 1000 && at < units.length - 1) { value /= 1000; at++; }
  return `${Number(value.toPrecision(digits))} ${units[at]}`;
}
const formatBytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"]);
const formatTime = (ns) => scaled(ns, ["ns", "µs", "ms", "s"]);
const formatFlops = (value) => scaled(value, ["", "k", "M", "G", "T"]).trim();
const formatShare = (value) => `${(100 * value).toFixed(1)} %`;
const formatError = (value) => value === null ? "" : value >= 1e29 ? "not finite" : value === 0 ? "0"
    : value.toExponential(1);
function formatWeight(run, value) {
  const name = run.weightName();
  return name === "time" ? formatTime(value) : name === "bytes" ? formatBytes(value) : `${formatFlops(value)}FLOP`;
}
function plural(count, noun) { return `${count} ${noun}${count === 1 ? "" : "s"}`; }

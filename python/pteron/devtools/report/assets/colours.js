// What colours stand for: one choice for all views. Sequential from pale to strong, categories apart from each other.

const RAMPS = {
  light: [[226, 236, 247], [158, 197, 226], [84, 148, 199], [30, 98, 163], [10, 53, 107]],
  dark: [[38, 50, 66], [38, 82, 124], [44, 121, 178], [93, 168, 219], [187, 222, 245]],
};
const ERROR_RAMPS = {
  light: [[238, 243, 238], [253, 219, 174], [244, 150, 92], [207, 64, 50], [120, 10, 30]],
  dark: [[45, 56, 48], [105, 72, 38], [172, 95, 48], [226, 103, 84], [255, 190, 180]],
};
const CATEGORIES = {
  light: ["#4477aa", "#ee8866", "#228833", "#aa3377", "#bb9900", "#44aaaa", "#7755bb", "#cc4455", "#667788"],
  dark: ["#6fa3d8", "#f0a184", "#5fb96f", "#d176ab", "#d5b94a", "#66cccc", "#a78fe0", "#e7808c", "#9aa8b6"],
};

const UNKNOWN = { light: "#d5d9de", dark: "#3b434d" };

const theme = {
  chosen: null,
  isPrinting: false,
  name: "light",
  update() {
    const wanted = this.chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    this.name = this.isPrinting ? "light" : wanted;
    document.documentElement.dataset.theme = this.name;
  },
  // Colours of the style sheet, for canvases.
  palette() {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(["surface", "ink", "faint", "line", "accent", "mark"]
      .map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  },
};
theme.update();

function ramp(stops, share) {
  const place = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const at = Math.min(Math.floor(place), stops.length - 2);
  return stops[at].map((one, channel) => Math.round(one + (stops[at + 1][channel] - one) * (place - at)));
}
const rgb = (channels) => `rgb(${channels.join(",")})`;

function inkOn(colour) {
  const channels = colour.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) : colour.match(/\d+/g).map(Number);
  const linear = channels.map((one) => (one / 255) ** 2.2);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.25 ? "#10161d" : "#ffffff";
}

// The backends, operators or element types of all programs, each with a colour that stays.
class Categories {
  constructor(names) { this.places = new Map([...new Set(names)].sort().map((name, at) => [name, at])); }
  colour(name) {
    const list = CATEGORIES[theme.name];
    return list[(this.places.get(name) ?? 0) % list.length];
  }
  names() { return [...this.places.keys()]; }
}

const BACKENDS = new Categories(PROGRAMS.flatMap((program) =>
  [...program.file.backend, ...program.plan.backend].map((at) => TEXTS[at] || "kernels")));

const COLOURINGS = [
  ["time", "time"], ["bytes", "bytes"], ["flops", "operations"], ["error", "error"], ["backend", "backend"],
];

// A share from 0 to 1 of each step under a colouring; null where it is not known.
function shareOf(run, colouring, step) {
  if (colouring === "time") return run.isMeasured ? Math.sqrt(run.ns[step] / largest(run, "time")) : null;
  if (colouring === "bytes") return Math.sqrt(run.plan.bytes[step] / largest(run, "bytes"));
  if (colouring === "flops") return Math.sqrt(run.plan.flops[step] / largest(run, "flops"));
  const error = run.errors ? run.errors[step] : null;
  return error === null ? null : error === 0 ? 0 : Math.max(0.1, Math.min(1, 1 + Math.log10(error) / 9));
}

function largest(run, colouring) {
  run.largest ??= {};
  run.largest[colouring] ??= Math.max(1e-9, ({ time: run.ns, bytes: run.plan.bytes,
      flops: run.plan.flops })[colouring]
    .reduce((a, b) => Math.max(a, b), 0));
  return run.largest[colouring];
}

function stepColour(run, colouring, step) {
  if (colouring === "backend") return BACKENDS.colour(run.plan.text("backend", step) || "kernels");
  const share = shareOf(run, colouring, step);
  if (share === null) return UNKNOWN[theme.name];
  return rgb(ramp((colouring === "error" ? ERROR_RAMPS : RAMPS)[theme.name], share));
}

// A node of either layer: an instruction has the colour of the step that it became a part of.
function nodeColour(run, colouring, layer, at) {
  if (layer.id === "plan") return stepColour(run, colouring, at);
  if (colouring === "backend") return BACKENDS.colour(layer.text("backend", at) || "kernels");
  if (colouring === "bytes" || colouring === "flops") {
    layer.most ??= {};
    layer.most[colouring] ??= layer[colouring].reduce((a, b) => Math.max(a, b), 1);
    return rgb(ramp(RAMPS[theme.name], Math.sqrt(layer[colouring][at] / layer.most[colouring])));
  }
  const steps = run.plan.byInstruction.get(at);
  if (!steps) return UNKNOWN[theme.name];
  return steps.length > 1 ? groupColour(run, colouring, run.plan, steps) : stepColour(run, colouring, steps[0]);
}

// The colour of several nodes together: their sum, the worst error, or the backend of most.
function groupColour(run, colouring, layer, nodes) {
  if (colouring === "backend") {
    const counts = new Map();
    for (const at of nodes) counts.set(layer.backend[at], (counts.get(layer.backend[at]) ?? 0) + 1);
    const [most] = [...counts].sort((a, b) => b[1] - a[1])[0] ?? [0];
    return BACKENDS.colour(TEXTS[most] || "kernels");
  }
  const steps = layer.id === "plan" ? nodes : [...new Set(nodes.flatMap((at) => run.plan.byInstruction.get(at) ?? []))];
  if (colouring === "error") {
    const worst = steps.reduce((found, at) => {
      const error = run.errors?.[at] ?? null;
      return error !== null && (found === null || error > run.errors[found]) ? at : found;
    }, null);
    return worst === null ? UNKNOWN[theme.name] : stepColour(run, "error", worst);
  }
  const column = colouring === "time" ? run.ns : run.plan[colouring];
  if (!column) return UNKNOWN[theme.name];
  const sum = steps.reduce((total, at) => total + column[at], 0);
  const whole = column.reduce((a, b) => a + b, 0) || 1;
  return rgb(ramp(RAMPS[theme.name], Math.sqrt(sum / whole)));
}

function legend(run, colouring) {
  if (colouring === "backend") {
    return el("span", { class: "legend" }, BACKENDS.names().map((name) => [
      el("i", { style: { background: BACKENDS.colour(name) } }), el("span", {}, name)]));
  }
  const stops = (colouring === "error" ? ERROR_RAMPS : RAMPS)[theme.name];
  const end = colouring === "time" ? (run.isMeasured ? formatTime(largest(run, "time")) : "not measured")
    : colouring === "bytes" ? formatBytes(largest(run, "bytes"))
      : colouring === "flops" ? `${formatFlops(largest(run, "flops"))}FLOP` : run.errors ? "relative error 1"
          : "not compared";
  const bar = el("i", { class: "ramp", style: { background: `linear-gradient(to right, ${stops
      .map(rgb).join(",")})` } });
  return el("span", { class: "legend" }, "0", bar, end);
}

// One selection for all views. It names steps by what they are called in every program, so that it holds in each run.

const state = {
  run: RUNS[0],
  layer: "plan",
  colouring: RUNS[0].isMeasured ? "time" : RUNS[0].errors ? "error"
      : RUNS[0].hasFlops ?? RUNS[0].plan.flops.some(Boolean) ? "flops" : "bytes",
  search: "",
  selection: null,
};

const listeners = { selection: [], view: [], search: [] };
function on(kind, listener) { listeners[kind].push(listener); }
function emit(kind) { for (const listener of listeners[kind]) listener(); }

class Selection {
  constructor(run, { module = null, steps = null, instructions = null, title }) {
    Object.assign(this, { module, title });
    this.run = run;
    this.places = new Map();
    const plan = run.plan;
    let chosen = steps;
    if (module !== null) chosen = nodesIn(plan, module);
    else if (!chosen) chosen = [...new Set([...instructions].flatMap((at) => plan.byInstruction.get(at) ?? []))];
    const own = { steps: new Set(chosen) };
    own.instructions = module !== null ? new Set(nodesIn(run.program.file, module))
      : new Set(instructions ?? [...own.steps].flatMap((at) => plan.instructions[at]));
    // A step keeps only the instructions of the file: those of an opened delegate are its one call.
    this.places.set(run.program, own);
  }
  // The steps and instructions of this selection in a run's program.
  in(run) {
    const program = run.program;
    if (!this.places.has(program)) {
      const own = this.places.get(this.run.program);
      if (this.module !== null) {
        this.places.set(program, {
          steps: new Set(nodesIn(program.plan, this.module)),
              instructions: new Set(nodesIn(program.file, this.module)) });
      } else {
        this.places.set(program, {
          steps: matched(this.run.plan, program.plan, own.steps),
          instructions: matched(this.run.program.file, program.file, own.instructions) });
      }
    }
    return this.places.get(program);
  }
  nodes(run, layerId) { return layerId === "plan" ? this.in(run).steps : this.in(run).instructions; }
}

function nodesIn(layer, module) {
  const out = [];
  for (let at = 0; at < layer.count; at++) if (isInside(layer.module(at), module)) out.push(at);
  return out;
}

function matched(from, to, nodes) {
  const out = new Set();
  for (const at of nodes) {
    const found = to.byKey.get(from.key[at]);
    if (found !== undefined) out.add(found);
  }
  return out;
}

function choose(selection) {
  state.selection = selection;
  emit("selection");
}
const chooseModule = (run, path) => choose(new Selection(run, { module: path, title: path }));
const chooseStep = (run, step) => choose(new Selection(run, { steps: [step], title: `step ${step}` }));
const chooseInstruction = (run, at) => choose(new Selection(run, { instructions: [at], title: `instruction ${at}` }));
const chooseNode = (run, layerId, at) => layerId === "plan" ? chooseStep(run, at) : chooseInstruction(run, at);
function chooseLifetime(run, layer, at) {
  const writer = layer.lifetimes.writer[at];
  const nodes = [...new Set([...(writer < 0 ? [] : [writer]), ...layer.readers(at)])];
  const title = layer.tensor(at);
  choose(new Selection(run, layer.id === "plan" ? { steps: nodes, title } : { instructions: nodes, title }));
}

function isChosen(run, step) { return Boolean(state.selection) && state.selection.in(run).steps.has(step); }

// The step before or after the selection, for the arrow keys of every view.
function stepBy(run, distance) {
  const steps = state.selection ? [...state.selection.in(run).steps] : [];
  const from = steps.length ? (distance > 0 ? Math.max(...steps) : Math.min(...steps)) : distance > 0 ? -1
      : run.plan.count;
  chooseStep(run, Math.max(0, Math.min(run.plan.count - 1, from + distance)));
}

function matchesSearch(run, step) {
  if (!state.search) return false;
  const plan = run.plan;
  return [plan.text("operator", step), plan.module(step), run.kernel(step), plan.text("line", step)]
    .some((text) => text.toLowerCase().includes(state.search));
}

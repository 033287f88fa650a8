// Places of boxes inside boxes: ranks by the longest path, rows by the middle of what comes before, groups from inside out.

const GAP_X = 18;
const GAP_Y = 26;
const PAD = 12;
const TITLE = 20;
const MOST_CHILDREN = 150;

// What the graph shows: modules, long lists of nodes in pieces, fused steps with the instructions that they replace.
class Box {
  constructor(kind, id, label, parent) {
    Object.assign(this, { kind, id, label, parent, children: [], nodes: [] });
  }
  get isGroup() { return this.children.length > 0; }
  add(kind, id, label) {
    const child = new Box(kind, id, label, this);
    this.children.push(child);
    return child;
  }
}

// Modules are boxes of neighbours: one that is left and entered again has several, so that no box is before and after
// another one at the same time.
function boxTree(layer) {
  const root = new Box("root", "", "", null);
  let open = [root];
  for (let at = 0; at < layer.count; at++) {
    const parts = layer.module(at) ? layer.module(at).split(".") : [];
    let same = 1;
    while (same <= parts.length && open[same]?.label === parts[same - 1]) same++;
    open = open.slice(0, same);
    for (let depth = same; depth <= parts.length; depth++) {
      const path = parts.slice(0, depth).join(".");
      const box = open.at(-1).add("module", `${path} from ${at}`, parts[depth - 1]);
      box.path = path;
      open.push(box);
    }
    const one = open.at(-1).add("node", `${layer.id} ${at}`, layer.text("operator", at));
    one.node = at;
    one.path = layer.module(at);
  }
  const leaf = new Map();
  const finish = (box) => {
    // A module with one step alone is that step, with the module's name.
    box.children = box.children.map((child) => {
      finish(child);
      const only = child.kind === "module" && child.children.length === 1 ? child.children[0] : null;
      if (only?.kind !== "node") return child;
      only.parent = box;
      only.within = child.label;
      return only;
    });
    if (box.children.length > MOST_CHILDREN) box.children = pieces(box);
    if (box.kind === "node") {
      box.nodes = [box.node];
      leaf.set(box.node, box);
      addParts(box, layer);
    } else box.nodes = box.children.flatMap((child) => child.nodes);
  };
  finish(root);
  return { root, leaf };
}

// A long list in boxes of a hundred.
function pieces(box) {
  const out = [];
  for (let from = 0; from < box.children.length; from += 100) {
    const members = box.children.slice(from, from + 100);
    const first = members[0].nodes[0];
    const piece = new Box("piece", `piece ${first}`, `${first} … ${members.at(-1).nodes.at(-1)}`, box);
    piece.children = members;
    piece.nodes = members.flatMap((child) => child.nodes);
    for (const member of members) member.parent = piece;
    out.push(piece);
  }
  return out;
}

function addParts(box, layer) {
  const covered = layer.instructions[box.node];
  if (layer.id !== "plan" || covered.length < 2) return;
  for (const at of covered) {
    const part = box.add("part", `part ${box.node} ${at}`, layer.program.file.text("operator", at));
    part.instruction = at;
  }
}

// Inputs above all, outputs below: boxes of their own.
function addBorders(tree, layer) {
  const inputs = layer.lifetimes.writer.flatMap((writer, at) => writer < 0 && !layer.lifetimes.state[at]
      && layer.readers(at).length ? [at] : []);
  tree.inputs = new Map();
  const boxes = [];
  for (const at of inputs.slice(0, MOST_CHILDREN)) {
    const box = new Box("input", `input ${at}`, layer.tensor(at), tree.root);
    box.lifetime = at;
    tree.inputs.set(at, box);
    boxes.push(box);
  }
  tree.outputs = layer.outputs.slice(0, MOST_CHILDREN).map(([text, writer], at) => {
    const box = new Box("output", `output ${at}`, TEXTS[text], tree.root);
    box.writer = writer;
    return box;
  });
  tree.root.children = [...boxes, ...tree.root.children, ...tree.outputs];
}

// The edges of the tree's leaves: pairs of boxes, and whether it is a jump.
function leafEdges(tree, layer) {
  const out = [];
  layer.reads.forEach((list, at) => {
    for (const lifetime of list) {
      const writer = layer.lifetimes.writer[lifetime];
      const from = writer < 0 ? tree.inputs.get(lifetime) : tree.leaf.get(writer);
      if (from && tree.leaf.get(at) !== from) out.push([from, tree.leaf.get(at)]);
    }
  });
  for (const [at, to] of layer.jumps) if (tree.leaf.has(to)) out.push([tree.leaf.get(at), tree.leaf.get(to), true]);
  for (const box of tree.outputs) if (box.writer >= 0) out.push([tree.leaf.get(box.writer), box]);
  if (layer.id === "plan") {
    const file = layer.program.file;
    for (const step of tree.leaf.values()) {
      if (!step.isGroup) continue;
      const parts = new Map(step.children.map((part) => [part.instruction, part]));
      for (const [at, part] of parts) {
        for (const lifetime of file.reads[at]) {
          const from = parts.get(file.lifetimes.writer[lifetime]);
          if (from && from !== part) out.push([from, part]);
        }
      }
    }
  }
  return out;
}

function ancestors(box) {
  const out = [];
  for (let here = box; here; here = here.parent) out.push(here);
  return out;
}

// Sets x, y (in the parent), width and height of every visible box; returns edges between visible boxes.
function layOut(tree, edges, open, sizeOf) {
  const shown = (box) => {
    let found = box;
    for (let here = box.parent; here && here.parent; here = here.parent) if (!open.has(here.id)) found = here;
    return found;
  };
  const visible = new Map();
  const inside = new Map();
  const jumps = [];
  for (const [from, to, isJump] of edges) {
    const [a, b] = [shown(from), shown(to)];
    if (a === b) continue;
    if (isJump) {
      jumps.push({ from: a, to: b, count: 1, isJump });
      continue;
    }
    const pair = visible.get(a) ?? visible.set(a, new Map()).get(a);
    pair.set(b, (pair.get(b) ?? 0) + 1);
    // In the lowest box that holds both, their children are neighbours.
    const above = ancestors(a);
    const places = new Map(above.map((box, at) => [box, at]));
    let [child, group] = [b, b.parent];
    while (group && !places.has(group)) [child, group] = [group, group.parent];
    if (!group || child === group) continue;
    const other = above[places.get(group) - 1];
    if (!other || other === child) continue;
    const list = inside.get(group) ?? inside.set(group, new Map()).get(group);
    const targets = list.get(other) ?? list.set(other, new Set()).get(other);
    targets.add(child);
  }
  const place = (box) => {
    if (!box.isGroup || (box.parent && !open.has(box.id))) {
      Object.assign(box, sizeOf(box));
      return;
    }
    for (const child of box.children) place(child);
    placeChildren(box, inside.get(box) ?? new Map());
  };
  place(tree.root);
  return [...jumps, ...[...visible].flatMap(([from, targets]) => [...targets]
      .map(([to, count]) => ({ from, to, count })))];
}

function placeChildren(box, targets) {
  const order = new Map(box.children.map((child, at) => [child, at]));
  const before = new Map(box.children.map((child) => [child, []]));
  const after = new Map(box.children.map((child) => [child, []]));
  for (const [from, list] of targets) {
    // What leads back, as in a loop or a module that is used twice, does not rank.
    for (const to of list) {
      if (order.get(from) >= order.get(to)) continue;
      before.get(to).push(from);
      after.get(from).push(to);
    }
  }
  const rank = new Map();
  const rows = [];
  for (const child of box.children) {
    const at = before.get(child).reduce((most, one) => Math.max(most, rank.get(one) + 1), 0);
    rank.set(child, at);
    (rows[at] ??= []).push(child);
  }
  // What nothing comes before stands just above what reads it.
  const slot = new Map();
  const number = (row) => row.forEach((child, at) => slot.set(child, at));
  rows.forEach(number);
  const middle = (list) => list.length ? list.reduce((sum, one) => sum + slot.get(one), 0) / list.length : null;
  for (let sweep = 0; sweep < 4; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      const key = new Map(row.map((child) => [child,
          middle((isDown ? before : after).get(child)) ?? slot.get(child)]));
      row.sort((a, b) => key.get(a) - key.get(b));
      number(row);
    }
  }
  let y = PAD + (box.parent ? TITLE : 0);
  const centre = new Map();
  for (const row of rows) {
    let right = -Infinity;
    row.forEach((child, at) => {
      const wanted = before.get(child).map((one) => centre.get(one));
      const ideal = wanted.length ? wanted.reduce((a, b) => a + b, 0) / wanted.length - child.width / 2
        : at ? right : -row.reduce((sum, one) => sum + one.width + GAP_X, -GAP_X) / 2;
      child.x = Math.max(ideal, right);
      child.y = y;
      right = child.x + child.width + GAP_X;
      centre.set(child, child.x + child.width / 2);
    });
    y += row.reduce((most, child) => Math.max(most, child.height), 0) + GAP_Y;
  }
  const least = Math.min(...box.children.map((child) => child.x));
  const inner = Math.max(...box.children.map((child) => child.x + child.width)) - least;
  box.width = Math.max(inner, (box.title ?? box.label).length * 6.3 + 10) + 2 * PAD;
  for (const child of box.children) child.x += (box.width - inner) / 2 - least;
  box.height = y - GAP_Y + PAD;
}

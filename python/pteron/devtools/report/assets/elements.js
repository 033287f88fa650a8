// Elements without markup: every text is a text node, every style goes through the object model.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}
function setStyle(element, style) {
  for (const [property, value] of Object.entries(style)) element.style.setProperty(property, value);
}
const present = (children) => children.flat(Infinity).filter((one) => one !== null && one !== undefined);
const show = (element, ...children) => element.replaceChildren(...present(children));
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function select(label, options, value, onchange) {
  const list = el("select", { onchange: (event) => onchange(event.target.value) },
    options.map(([id, text]) => el("option", { value: id, selected: id === value }, text)));
  return el("label", { class: "choice" }, el("span", {}, label), list);
}

// A heading, controls and a body; the place of one view.
function section(id, title, about, controls = []) {
  const body = el("div", { class: "body" });
  const bar = el("div", { class: "controls" }, controls);
  const element = el("section", { id, "aria-labelledby": `${id}-title` },
    el("div", { class: "head" }, el("h2", { id: `${id}-title` }, title), bar), el("p", { class: "about" }, about),
        body);
  document.querySelector("main").append(element);
  return { element, body, bar };
}

function clip(text, most) { return text.length > most ? `${text.slice(0, Math.max(most - 1, 1))}…` : text; }

// The names of a path's end are what tells it from others.
function clipPath(text, most) {
  return text.length > most ? `…${text.slice(text.length - Math.max(most - 1, 1))}` : text;
}

const tooltip = {
  show(event, lines) {
    this.element ??= document.body.appendChild(el("div", { class: "tooltip", "aria-hidden": "true" }));
    this.element.replaceChildren(...lines.filter(Boolean)
        .map((line, at) => el(at ? "div" : "strong", {}, clip(line, 160))));
    const { clientX: x, clientY: y } = event;
    this.element.style.display = "block";
    const box = this.element.getBoundingClientRect();
    this.element.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
    this.element.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
  },
  hide() { if (this.element) this.element.style.display = "none"; },
};

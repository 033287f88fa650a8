// Canvases: a click selects what lies there, arrow keys walk over steps; the second kind zooms over a range of numbers.

class Canvas {
  // draw(context, width, height, colours) paints all but the selection, mark(context, colours, width) the selection
  // above it; hit(x, y) -> { lines, choose } or null; height(width).
  constructor(body, label, hooks) {
    Object.assign(this, hooks);
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": label });
    body.append(this.canvas);
    this.canvas.addEventListener("pointerdown", (event) => this.down(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.up(event));
    this.canvas.addEventListener("pointerleave", () => tooltip.hide());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.base = document.createElement("canvas");
    this.isStale = true;
    new ResizeObserver(() => this.redraw()).observe(body);
    // What is out of sight is painted when it comes into sight.
    new IntersectionObserver((entries) => {
      this.isInSight = entries.at(-1).isIntersecting;
      if (this.isInSight) this.ask();
    }, { rootMargin: "200px" }).observe(this.canvas);
    CANVASES.push(this);
  }
  label(text) { this.canvas.setAttribute("aria-label", text); }
  redraw() {
    this.isStale = true;
    this.ask();
  }
  // The selection alone: what lies below it is copied.
  remark() { this.ask(); }
  // Once a frame, however often a view asks for it.
  ask() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => { this.isAsked = false; if (this.isInSight) this.paint(); });
  }
  paint() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    const density = Math.min(devicePixelRatio || 1, 2);
    const colours = theme.palette();
    if (this.isStale || width !== this.width) {
      this.isStale = false;
      this.width = width;
      const height = this.height(width);
      for (const one of [this.base, this.canvas]) {
        one.width = Math.round(width * density);
        one.height = Math.round(height * density);
      }
      this.canvas.style.height = `${height}px`;
      const context = this.context(this.base, density);
      context.fillStyle = colours.surface;
      context.fillRect(0, 0, width, height);
      this.draw(context, width, height, colours);
    }
    const context = this.context(this.canvas, 1);
    context.drawImage(this.base, 0, 0);
    context.setTransform(density, 0, 0, density, 0, 0);
    this.mark(context, colours, width);
    this.canvas.dataset.painted = String(Number(this.canvas.dataset.painted ?? 0) + 1);
  }
  context(canvas, density) {
    const context = canvas.getContext("2d");
    context.setTransform(density, 0, 0, density, 0, 0);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    return context;
  }
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
  hitAt(event) { return this.hit(...this.place(event)); }
  down(event) {
    this.drag = { x: event.clientX, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }
  move(event) {
    if (this.drag) return;
    const found = this.hitAt(event);
    this.canvas.style.cursor = found ? "pointer" : "default";
    if (found) tooltip.show(event, found.lines());
    else tooltip.hide();
  }
  up(event) {
    const wasDrag = this.drag?.moved;
    this.drag = null;
    if (wasDrag) return;
    const found = this.hitAt(event);
    if (found) found.choose();
    else choose(null);
  }
  actions() {
    return { ArrowRight: () => stepBy(state.run, 1), ArrowLeft: () => stepBy(state.run, -1),
        Escape: () => choose(null) };
  }
  key(event) {
    const action = this.actions()[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }
}
const CANVASES = [];

class ZoomCanvas extends Canvas {
  // range() -> [from, to]; what hit() returns may have a span, to which a double click zooms.
  constructor(body, label, hooks) {
    super(body, label, hooks);
    this.view = [...this.range()];
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("dblclick", (event) => this.focus(this.hitAt(event)));
  }
  reset() { this.view = [...this.range()]; this.redraw(); }
  get span() { return this.view[1] - this.view[0]; }
  get left() { return this.margin ?? 0; }
  x(value) { return this.left + ((value - this.view[0]) / this.span) * (this.width - this.left); }
  value(x) { return this.view[0] + ((x - this.left) / (this.width - this.left)) * this.span; }
  show(from, span) {
    const [low, high] = this.range();
    const start = Math.max(low, Math.min(high - span, from));
    this.view = [start, Math.min(high, start + span)];
    this.redraw();
  }
  zoom(factor, around) {
    const [low, high] = this.range();
    const span = Math.min(high - low, Math.max(this.span * factor, (high - low) / 20000));
    this.show(around - ((around - this.view[0]) / this.span) * span, span);
  }
  focus(found) {
    if (!found?.span) return;
    const wide = found.span[1] - found.span[0];
    this.show(found.span[0] - wide * 0.1, wide * 1.2);
  }
  // Moves as little as shows the span.
  reveal(from, to) {
    if (from >= this.view[0] && to <= this.view[1]) return;
    const [low, high] = this.range();
    if (this.span >= high - low) return;
    this.show((from + to) / 2 - this.span / 2, this.span);
  }
  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey && document.activeElement !== this.canvas) return;
    const [low, high] = this.range();
    const distance = event.deltaY || event.deltaX;
    // The page scrolls where there is nothing to zoom out of.
    if (distance > 0 && this.span >= (high - low) * 0.9999) return;
    event.preventDefault();
    this.zoom(distance > 0 ? 1.25 : 0.8, this.value(this.place(event)[0]));
  }
  move(event) {
    if (!this.drag) { super.move(event); return; }
    const distance = event.clientX - this.drag.x;
    if (Math.abs(distance) > 3) this.drag.moved = true;
    if (this.drag.moved) {
      this.show(this.view[0] - (distance / (this.width - this.left)) * this.span, this.span);
      this.drag.x = event.clientX;
    }
  }
  actions() {
    const middle = (this.view[0] + this.view[1]) / 2;
    return {
      ...super.actions(), "+": () => this.zoom(0.7, middle), "=": () => this.zoom(0.7, middle),
          "-": () => this.zoom(1.4, middle), 0: () => this.reset() };
  }
}

function drawLabel(context, text, x, y, room, colour) {
  if (room < 16) return;
  context.fillStyle = colour;
  const most = Math.floor(room / 6.2);
  context.fillText(clip(text, most), x, y, room);
}

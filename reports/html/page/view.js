"use strict";
// A canvas with time on its width: zoom and pan by mouse, finger and keyboard; one thing on it is pointed at, one chosen.

/** `options`: first and last (ns), left, height, draw(context, view), at(x, y): the thing there or null, describe(thing or
    null), same(a, b) where things are not compared by ===, keys: actions by name, beside the view's own keys. `draw` sees
    view.from, view.to, view.width, view.height, view.x(time), view.hovered and view.chosen. */
report.TimeView = class {
  constructor(canvas, options) {
    Object.assign(this, { canvas, options, from: options.first, to: options.last, left: options.left || 0, pointers: new Map(), chosen: null, hovered: null });
    this.resize();
    const on = (name, handler, passive) => canvas.addEventListener(name, handler, passive === undefined ? undefined : { passive });
    on("wheel", (event) => this.wheel(event), false);
    on("pointerdown", (event) => this.down(event));
    on("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) on(name, (event) => this.up(event));
    on("dblclick", (event) => this.zoom(0.25, this.time(event.offsetX)));
    on("pointerleave", () => this.hover(null));
    on("keydown", (event) => this.key(event));
    options.describe(null);
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.width = Math.max(200, this.canvas.clientWidth);
    this.height = this.options.height;
    this.canvas.style.height = this.height + "px";
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.ratio = ratio;
    this.draw();
  }

  x(time) { return this.left + ((time - this.from) / (this.to - this.from)) * (this.width - this.left); }
  time(x) { return this.from + ((x - this.left) / (this.width - this.left)) * (this.to - this.from); }

  draw() {
    const context = this.canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.fillStyle = report.colours.page("paper");
    context.fillRect(0, 0, this.width, this.height);
    this.options.draw(context, this);
  }
  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  show(from, to) {
    const { first, last } = this.options;
    const width = Math.min(Math.max(to - from, 100), (last - first) * 1.02);
    const room = (last - first) * 0.01;
    this.from = Math.min(Math.max(from, first - room), last + room - width);
    this.to = this.from + width;
    this.later();
  }
  /** All of the step. Ops that run ahead of it may begin long before it; panning reaches them. */
  fit() {
    const begin = this.options.begin || 0;
    const room = (this.options.last - begin) * 0.01;
    this.show(begin - room, this.options.last + room / 2);
  }
  zoom(factor, around = (this.from + this.to) / 2) { this.show(around - (around - this.from) * factor, around + (this.to - around) * factor); }
  pan(share) { const by = (this.to - this.from) * share; this.show(this.from + by, this.to + by); }
  /** So that [begin, end] is seen with something around it. */
  reveal(begin, end) {
    const wanted = Math.max((end - begin) * 8, 1000);
    if (begin >= this.from && end <= this.to && this.x(end) - this.x(begin) > 4) return this.later();
    const width = Math.min(this.to - this.from, wanted * 20);
    const use = this.x(end) - this.x(begin) > 4 && width >= end - begin ? width : wanted;
    return this.show((begin + end) / 2 - use / 2, (begin + end) / 2 + use / 2);
  }

  /** Keeps a thing described, until another one is chosen; null: none. */
  choose(thing) {
    this.chosen = thing;
    this.options.describe(thing);
    this.later();
  }
  /** Describes a thing for as long as it is pointed at. */
  hover(thing) {
    const same = this.options.same || ((a, b) => a === b);
    if (thing && this.hovered ? same(thing, this.hovered) : thing === this.hovered) return;
    this.hovered = thing;
    this.options.describe(thing || this.chosen);
    this.later();
  }

  wheel(event) {
    // Plain turns of the wheel scroll the page until the canvas has been taken.
    if (document.activeElement !== this.canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || event.deltaY) / 1000);
    else this.zoom(Math.exp(event.deltaY / 400), this.time(event.offsetX));
  }
  down(event) {
    this.pointers.set(event.pointerId, event.offsetX);
    this.canvas.setPointerCapture(event.pointerId);
    this.moved = 0;
    this.canvas.focus({ preventScroll: true });
  }
  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) return this.hover(this.options.at(event.offsetX, event.offsetY));
    const x = event.offsetX;
    this.moved += Math.abs(x - before);
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    this.pointers.set(event.pointerId, x);
    if (others.length) {
      const fixed = others[0][1];
      if (Math.abs(x - fixed) > 8) this.zoom(Math.abs(before - fixed) / Math.abs(x - fixed), this.time(fixed));
    } else if (this.moved > 3) {
      this.pan((before - x) / (this.width - this.left));
    }
    return undefined;
  }
  up(event) {
    if (this.pointers.delete(event.pointerId) && this.moved <= 3 && event.type === "pointerup") this.choose(this.options.at(event.offsetX, event.offsetY));
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0" || event.key === "Home") this.fit();
    else if (event.shiftKey && event.key === "ArrowLeft") this.pan(-0.2);
    else if (event.shiftKey && event.key === "ArrowRight") this.pan(0.2);
    else if (this.options.keys[event.key]) this.options.keys[event.key]();
    else return;
    event.preventDefault();
  }
};

/** Ticks of time along the top: a line and its text every 80 to 200 pixels. */
report.timeAxis = (context, view, height) => {
  const about = ((view.to - view.from) / (view.width - view.left)) * 110;
  const power = 10 ** Math.floor(Math.log10(about));
  const every = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= about);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  context.textAlign = "left";
  for (let t = Math.ceil(view.from / every) * every; t <= view.to; t += every) {
    const x = Math.round(view.x(t)) + 0.5;
    if (x < view.left) continue;
    context.strokeStyle = report.colours.page("grid");
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.stroke();
    context.fillStyle = report.colours.page("muted");
    const text = Math.abs(t) < every / 2 ? "0" : report.format.time(t).replace(/\.(\d*?)0+ /, ".$1 ").replace(/\. /, " ");
    if (x + 4 + context.measureText(text).width < view.width) context.fillText(text, x + 3, 2);
  }
};

/** Buttons that every such canvas has. */
report.viewTools = (view) => [
  report.element("button", { type: "button", text: "Zoom in", onclick: () => view().zoom(0.5) }),
  report.element("button", { type: "button", text: "Zoom out", onclick: () => view().zoom(2) }),
  report.element("button", { type: "button", text: "Whole step", onclick: () => view().fit() }),
];

"use strict";
// The pools as a map: each buffer where its bytes lie, for as long as they are its own.

report.poolsPart = (holder, run) => {
  const { element, format, clean } = report;
  const { buffers, plan } = run;
  const stored = run.result.plan ? run.result.plan.pools : [];
  const cached = report.needs(run.result.memory).reserved !== null;
  const heights = report.table(cached ? "Reserved by the allocator at most, by stream (" + run.source + "); streams reach it at different times, so the sum may be above what is reserved at once" : "Pools (" + run.source + ")", [{ title: cached ? "stream" : "pool", text: true }, { title: cached ? "reserved" : "bytes", number: true }, { title: cached ? "allocated at most" : "lower bound", number: true }, { title: "above it", number: true }],
    stored.map((pool) => [clean(pool.name, 60), format.bytes(pool.height_bytes), format.bytes(pool.lower_bound_bytes), pool.lower_bound_bytes > 0 ? format.percent(pool.height_bytes / pool.lower_bound_bytes - 1, 2) : "none"]));
  if (!buffers) {
    report.clear(holder, report.note("Buffers and their offsets: not stored. The tool that wrote this page could not build this run's plan again, or the run has no op times."), heights);
    return null;
  }
  const held = plan.held;
  const pools = plan.pools;
  const all = [];
  for (let b = 0; b < held.size.length; ++b) if (held.persistent[b]) all.push({ b, offset: held.offset[b], begin: 0, end: run.end, always: true });
  for (let i = 0; i < buffers.begin.length; ++i) {
    const b = buffers.buffer[i];
    const alignment = 256;
    const place = held.offset[b] + buffers.slot[i] * Math.ceil(held.size[b] / alignment) * alignment;
    all.push({ b, offset: place, begin: buffers.begin[i], end: buffers.end[i], always: false });
  }
  all.sort((x, y) => x.begin - y.begin || x.offset - y.offset);

  const choice = element("select", { id: "pool-choice" }, element("option", { value: "-1", text: "all pools" }), ...pools.map((pool, i) => element("option", { value: String(i), text: clean(pool.name, 60) + ", " + format.bytes(pool.height) })));
  const canvas = element("canvas", { class: "own", id: "pools-canvas", tabindex: "0", role: "img", "aria-describedby": "pools-help" });
  canvas.setAttribute("aria-label", "Map of " + pools.length + " pools with " + format.count(all.length) + " stretches of buffers over " + format.time(run.end));
  const details = element("div", { class: "details", id: "pools-details", role: "status" });
  const [top, left, height] = [20, 92, 360];
  let view = null;
  let shown = all;
  let bases = [];
  let bytes = 1;

  const arrange = () => {
    const only = Number(choice.value);
    let sum = 0;
    bases = pools.map((pool, i) => {
      if (only >= 0 && only !== i) return null;
      const base = sum;
      sum += pool.height;
      return base;
    });
    bytes = Math.max(1, sum);
    shown = all.filter((one) => bases[held.pool[one.b]] !== null);
  };
  const y = (address) => view.height - 4 - (address / bytes) * (view.height - top - 4);
  const box = (one) => {
    const low = bases[held.pool[one.b]] + one.offset;
    return [view.x(one.begin), y(low + held.size[one.b]), view.x(one.end), y(low)];
  };

  const draw = (context, v) => {
    view = v;
    report.timeAxis(context, v, v.height);
    context.save();
    context.beginPath();
    context.rect(left, top, v.width - left, v.height - top);
    context.clip();
    for (const one of shown) {
      if (one.end < v.from || one.begin > v.to) continue;
      const [x0, y0, x1, y1] = box(one);
      const from = Math.max(left, x0);
      const width = Math.max(Math.min(x1, v.width) - from, 0.5);
      context.fillStyle = report.colours.categories[held.category[one.b]];
      context.globalAlpha = 0.92;
      context.fillRect(from, y0, width > 2 ? width - 0.4 : width, Math.max(y1 - y0 - (y1 - y0 > 2 ? 0.4 : 0), 0.5));
      if (width > 70 && y1 - y0 > 13) {
        context.globalAlpha = 1;
        context.fillStyle = "#10151a";
        context.font = "11px system-ui, sans-serif";
        context.textBaseline = "middle";
        context.textAlign = "left";
        context.fillText(clean(report.text(held.text[one.b]), 60).slice(0, Math.floor((width - 8) / 6.2)), from + 4, (y0 + y1) / 2);
      }
    }
    context.globalAlpha = 1;
    if (buffers.until < run.end) {
      context.fillStyle = report.colours.page("outside");
      context.fillRect(v.x(buffers.until), top, v.width, v.height);
    }
    for (const [one, colour, wide] of [[v.hovered, "ink", 1.5], [v.chosen, "accent", 3]]) {
      if (!one || bases[held.pool[one.b]] === null) continue;
      const [x0, y0, x1, y1] = box(one);
      context.strokeStyle = report.colours.page(colour);
      context.lineWidth = wide;
      context.strokeRect(x0, y0, Math.max(2, x1 - x0), Math.max(2, y1 - y0));
    }
    context.restore();
    context.lineWidth = 1;
    context.fillStyle = report.colours.page("ink");
    context.strokeStyle = report.colours.page("ink");
    context.font = "11px system-ui, sans-serif";
    let above = Infinity;
    pools.forEach((pool, i) => {
      if (bases[i] === null) return;
      const line = Math.round(y(bases[i] + pool.height)) + 0.5;
      context.globalAlpha = 0.5;
      context.beginPath();
      context.moveTo(left, line);
      context.lineTo(v.width, line);
      context.stroke();
      context.globalAlpha = 1;
      const middle = (y(bases[i]) + line) / 2;
      if (y(bases[i]) - line < 11 || above - middle < 12) return;
      context.textBaseline = "middle";
      context.textAlign = "left";
      context.fillText(clean(pool.name, 13), 2, middle);
      above = middle;
    });
  };
  const describe = (one) => {
    if (!one) return report.clear(details, element("p", { class: "muted", text: "Point at a buffer to see it here." }));
    const pairs = [
      ["pool", clean(pools[held.pool[one.b]].name, 60)], ["category", report.data.categories[held.category[one.b]]],
      ["size", format.bytes(held.size[one.b]) + " (" + format.count(held.size[one.b]) + ")"], ["offset", format.count(one.offset)],
      ["live from", one.always ? "always" : format.time(one.begin)], ["until", one.always ? "always" : format.time(one.end)],
      ["for", one.always ? "the whole run" : format.time(one.end - one.begin)],
    ];
    return report.clear(details, element("h3", { text: clean(report.text(held.text[one.b]), 80) }),
      element("dl", { class: "facts" }, ...pairs.map(([title, value]) => element("div", { "data-fact": title }, element("dt", { text: title }), element("dd", { text: value })))));
  };
  const at = (x, place) => {
    const time = view.time(x);
    let best = null;
    for (const one of shown) {
      if (one.begin > time || one.end < time) continue;
      const [, y0, , y1] = box(one);
      if (place >= y0 - 1 && place <= y1 + 1 && (!best || held.size[one.b] < held.size[best.b])) best = one;
    }
    return best;
  };
  const step = (by) => {
    const here = shown.indexOf(view.chosen);
    const next = shown[Math.max(0, Math.min(shown.length - 1, here < 0 ? 0 : here + by))];
    if (!next) return;
    view.choose(next);
    if (!next.always) view.reveal(next.begin, next.end);
  };
  const keys = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), Escape: () => view.choose(null) };

  const used = new Set(all.map((one) => held.category[one.b]));
  const legend = element("ul", { class: "legend", "aria-label": "Categories" }, ...report.data.categories.map((name, c) => {
    if (!used.has(c)) return null;
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = report.colours.categories[c];
    return element("li", {}, swatch, name);
  }));
  choice.addEventListener("change", () => { arrange(); view.hovered = null; view.choose(null); });
  const notes = ["Offsets come from the run's plan, built again and compared by its hash; times follow from its op times."];
  if (buffers.until < run.end) notes.push("The step has too many stretches for this page: they are shown until " + format.time(buffers.until) + "; the grey part is left out.");
  report.clear(holder, element("div", { class: "tools" }, element("label", {}, "Pool ", choice), ...report.viewTools(() => view)), canvas, legend,
    element("p", { id: "pools-help", class: "muted screen", text: "Drag pans, Ctrl with the wheel zooms. With Tab the canvas takes keys: left and right go from buffer to buffer by their begin, + and \u2212 zoom, Home shows the whole step." }),
    ...notes.map((text) => element("p", { class: "muted", text })), details, heights);
  arrange();
  view = new report.TimeView(canvas, { first: 0, last: run.end, left, height, draw, at, describe, keys });
  view.fit();
  return { redraw: () => view.draw(), resize: () => view.resize(), stop: () => {}, view, shown: () => shown, box };
};

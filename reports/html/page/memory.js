"use strict";
// Memory over a step, stacked by category, with its peak and what lives there.

/** Buffers of device pools live at a time, largest first. */
report.liveAt = (run, at) => {
  const { buffers, plan } = run;
  if (!buffers || at > buffers.until) return null;
  const live = [];
  const held = plan.held;
  const add = (buffer, begin, end) => live.push({ buffer, name: report.text(held.text[buffer]), category: report.data.categories[held.category[buffer]], size: held.size[buffer], begin, end });
  for (let b = 0; b < held.size.length; ++b) if (held.persistent[b]) add(b, null, null);
  for (let i = 0; i < buffers.begin.length && buffers.begin[i] <= at; ++i) if (at < buffers.end[i]) add(buffers.buffer[i], buffers.begin[i], buffers.end[i]);
  return live.sort((a, b) => b.size - a.size);
};

/** The memory that the run needs on its GPU, in one paragraph; null if none of it is stored. */
report.memoryNeeds = (run) => {
  const { format } = report;
  const needs = report.needs(run.result.memory);
  if (needs.deciding === null) return null;
  const words = [];
  if (needs.device !== null) words.push("Device memory: " + format.bytes(needs.device) + (needs.outside !== null ? ", of it " + format.bytes(needs.reserved) + " reserved by the allocator at most and " + format.bytes(needs.outside) + " of context and NCCL" : "") + ".");
  else if (needs.reserved !== null) words.push("Reserved by the allocator at most: " + format.bytes(needs.reserved) + "; what is beside it on the device is not stored.");
  if (needs.capacity !== null) words.push("The GPU has " + format.bytes(needs.capacity) + ".");
  return report.element("p", { id: "memory-needs", text: words.join(" ") });
};

report.memoryPart = (holder, run) => {
  const { element, format, clean } = report;
  const needs = report.needs(run.result.memory);
  const names = report.data.categories;
  const memory = run.memory;
  if (!memory) {
    const { categories } = run.result.memory;
    if (!categories) {
      report.clear(holder, report.memoryNeeds(run) || "", report.note("Memory by category: not stored for this run."));
      return null;
    }
    const total = Object.values(categories).reduce((sum, bytes) => sum + bytes, 0);
    report.clear(holder,
      report.memoryNeeds(run) || "",
      report.note((run.source === "measured" ? "A measured run" : "This run") + " stores no memory over time. This is its peak by category."),
      report.table("Peak by category (" + run.source + ")", [{ title: "category" }, { title: "bytes", number: true }, { title: "share", number: true }],
        Object.entries(categories).filter(([, bytes]) => bytes > 0).map(([name, bytes]) => [name, format.bytes(bytes), format.percent(bytes / total)])));
    return null;
  }
  const used = names.map((_, c) => c).filter((c) => memory.values[c].some((bytes) => bytes > 0));
  const on = new Set(used);
  const milliseconds = memory.at.map((at) => at / 1e6);
  let at = memory.peak;

  /** The highest series first, so that lower ones are painted over it. */
  const stacked = () => {
    const columns = [];
    let below = new Float64Array(memory.at.length);
    for (const c of used) {
      if (on.has(c)) below = below.map((bytes, i) => bytes + memory.values[c][i] / 2 ** 30);
      columns.unshift(on.has(c) ? below : new Float64Array(0));
    }
    return [milliseconds, ...columns.map((column) => (column.length ? column : new Array(memory.at.length).fill(null)))];
  };

  const chart = element("div", { class: "chart", id: "memory-chart", tabindex: "0", role: "img" });
  const details = element("div", { class: "details", id: "memory-details", role: "status" });
  const there = element("div", { id: "memory-live" });
  const peakText = format.bytes(memory.total[memory.peak]);
  let plot = null;

  const show = (point) => {
    at = point;
    const rows = used.map((c) => element("li", {}, element("span", { class: "swatch", "data-colour": c }), names[c] + " " + format.bytes(memory.values[c][point])));
    Object.assign(details.dataset, { at: memory.at[point], total: memory.total[point] });
    report.clear(details,
      element("h3", {}, format.bytes(memory.total[point]) + " live at " + format.time(memory.at[point]) + (point === memory.peak ? ", the peak" : "")),
      element("ul", { class: "legend" }, ...rows));
    for (const swatch of details.querySelectorAll("[data-colour]")) swatch.style.background = report.colours.categories[Number(swatch.dataset.colour)];
  };

  const showLive = (point) => {
    const when = (point === memory.peak ? "Live at the peak, " : "Live at ") + format.time(memory.at[point]);
    const live = report.liveAt(run, memory.at[point]);
    if (!live) return report.clear(there, report.note("Buffers: not stored. The tool that wrote this page could not build this run's plan again."));
    const most = live.slice(0, 15);
    const rest = live.slice(15);
    const rows = most.map((one) => [clean(one.name, 60), one.category, format.bytes(one.size), one.begin === null ? "always" : format.time(one.begin), one.begin === null ? "always" : format.time(one.end)]);
    if (rest.length) rows.push([rest.length + " others", "", format.bytes(rest.reduce((sum, one) => sum + one.size, 0)), "", ""]);
    return report.clear(there, report.table(when, [{ title: "buffer", text: true }, { title: "category" }, { title: "bytes", number: true }, { title: "live from", number: true }, { title: "until", number: true }], rows));
  };

  // ---- Limits: a line each where it is near enough to what lives, else a mark at the upper edge ----
  const highest = memory.total[memory.peak];
  const nearEnough = 2.5;
  const limits = [];
  if (needs.reserved !== null) limits.push({ bytes: needs.reserved, words: "reserved at most " + format.bytes(needs.reserved), colour: "ink", dash: [6, 4], below: true });
  if (needs.capacity !== null) limits.push({ bytes: needs.capacity, words: "the GPU's memory, " + format.bytes(needs.capacity), colour: "warn", dash: [], below: false });
  const near = limits.filter((limit) => limit.bytes <= nearEnough * highest);
  const far = limits.filter((limit) => limit.bytes > nearEnough * highest);
  chart.setAttribute("aria-label", "Live bytes by category over the step, stacked; largest total " + peakText + " at " + format.time(memory.at[memory.peak]) + ". " + limits.map((limit) => limit.words).join("; ") + ". Left and right arrow move, P goes to the peak.");
  const drawLimits = (u) => {
    const { left, top, width } = u.bbox;
    const { ctx } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = "600 " + 12 * ratio + "px system-ui, sans-serif";
    ctx.textAlign = "left";
    for (const limit of near) {
      const y = u.valToPos(limit.bytes / 2 ** 30, "y", true);
      ctx.strokeStyle = ctx.fillStyle = report.colours.page(limit.colour);
      ctx.lineWidth = 1.5 * ratio;
      ctx.setLineDash(limit.dash.map((length) => length * ratio));
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.textBaseline = limit.below ? "top" : "bottom";
      ctx.fillText(limit.words, left + 6 * ratio, y + (limit.below ? 3 : -2) * ratio);
    }
    far.forEach((limit, i) => {
      ctx.fillStyle = report.colours.page(limit.colour);
      ctx.textBaseline = "top";
      ctx.fillText("\u2191 " + limit.words + ", above this chart", left + 6 * ratio, top + (2 + 15 * i) * ratio);
    });
    ctx.restore();
  };

  const mark = (u) => {
    const x = u.valToPos(milliseconds[memory.peak], "x", true);
    const { left, top, width, height } = u.bbox;
    if (x < left || x > left + width) return;
    const { ctx } = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = report.colours.page("ink");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    ctx.font = 600 + " " + 12 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textAlign = x > left + width / 2 ? "right" : "left";
    ctx.textBaseline = "top";
    const words = "peak " + peakText;
    const space = 6 * devicePixelRatio * (ctx.textAlign === "right" ? -1 : 1);
    const wide = ctx.measureText(words).width;
    ctx.fillStyle = report.colours.page("paper");
    ctx.fillRect(ctx.textAlign === "right" ? x + space - wide - 3 : x + space - 3, top + 2, wide + 6, 16 * devicePixelRatio);
    ctx.fillStyle = report.colours.page("ink");
    ctx.fillText(words, x + space, top + 4);
    ctx.restore();
  };

  const create = () => {
    if (plot) plot.destroy();
    const axis = { stroke: report.colours.page("ink"), grid: { stroke: report.colours.page("grid"), width: 1 }, ticks: { stroke: report.colours.page("line"), width: 1, size: 5 }, font: "12px system-ui, sans-serif" };
    plot = new uPlot({
      width: Math.max(240, chart.clientWidth), height: 320,
      legend: { show: false },
      cursor: { points: { show: false }, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max((high || 1) * 1.08, ...near.map((limit) => (limit.bytes / 2 ** 30) * 1.08))] } },
      axes: [{ ...axis, label: "ms", labelSize: 20, labelFont: axis.font, size: 34 }, { ...axis, label: "GiB", labelSize: 20, labelFont: axis.font, size: 46 }],
      series: [{}, ...used.slice().reverse().map((c) => ({ label: names[c], stroke: report.colours.categories[c], width: 1, fill: report.colours.categories[c], paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }))],
      hooks: { draw: [drawLimits, mark], setCursor: [(u) => { if (u.cursor.idx !== null && u.cursor.idx !== undefined) show(u.cursor.idx); }] },
    }, stacked(), chart);
  };

  const go = (point) => {
    const target = Math.max(0, Math.min(memory.at.length - 1, point));
    show(target);
    plot.setCursor({ left: plot.valToPos(milliseconds[target], "x"), top: plot.valToPos(memory.total[target] / 2 ** 30, "y") }, false);
    showLive(target);
  };
  chart.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 50 : 1;
    if (event.key === "ArrowRight") go(at + far);
    else if (event.key === "ArrowLeft") go(at - far);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(memory.at.length - 1);
    else if (event.key === "p" || event.key === "P") go(memory.peak);
    else return;
    event.preventDefault();
  });
  chart.addEventListener("click", () => showLive(at));
  chart.addEventListener("mouseleave", () => show(at));

  const whole = () => plot.setScale("x", { min: milliseconds[0], max: milliseconds[milliseconds.length - 1] });
  const nearPeak = () => {
    const width = (milliseconds[milliseconds.length - 1] - milliseconds[0]) / 20;
    plot.setScale("x", { min: milliseconds[memory.peak] - width, max: milliseconds[memory.peak] + width });
    go(memory.peak);
  };
  const legend = element("ul", { class: "legend", "aria-label": "Categories" }, ...used.slice().reverse().map((c) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = report.colours.categories[c];
    return element("li", {}, element("button", { type: "button", "aria-pressed": "true", onclick: (event) => {
      if (on.has(c)) on.delete(c);
      else on.add(c);
      event.currentTarget.setAttribute("aria-pressed", String(on.has(c)));
      plot.setData(stacked(), false);
      plot.redraw();
    } }, swatch, names[c]));
  }));
  const stored = run.result.memory;
  report.clear(holder,
    element("p", {}, "Largest total " + peakText + " at " + format.time(memory.at[memory.peak]) + (stored.peak_op ? ", at " + clean(stored.peak_op, 80) : "") + ". " + (needs.reserved === null ? "Every pool at its fullest: " : "Allocated at most, in whole blocks: ") + format.bytes(stored.peak_bytes) + "."),
    report.memoryNeeds(run) || "",
    element("div", { class: "tools" }, element("button", { type: "button", text: "Near the peak", onclick: nearPeak }), element("button", { type: "button", text: "Whole step", onclick: whole }), element("span", { class: "muted", text: "Drag to zoom, click for what lives there." })),
    chart, legend, details, there);
  create();
  show(memory.peak);
  showLive(memory.peak);
  return { redraw: create, resize: () => plot.setSize({ width: Math.max(240, chart.clientWidth), height: 320 }), stop: () => plot.destroy() };
};

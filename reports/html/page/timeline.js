"use strict";
// The ops of a step on their streams.

report.timelinePart = (holder, run) => {
  const { element, format, clean } = report;
  const ops = run.ops;
  if (ops.count === 0) {
    report.clear(holder, report.note("Op times: not stored for this run."));
    return null;
  }
  const { lanes, omitted, counts, first, last, byOp } = run.timeline;
  const [top, pitch, bar] = [20, 34, 24];
  const left = Math.min(104, 12 + 7 * Math.max(...lanes.map((lane) => lane.name.length)));
  const groups = Uint8Array.from(ops.kind, (kind) => report.kindGroup(report.text(kind)));
  const canvas = element("canvas", { class: "own", id: "timeline-canvas", tabindex: "0", role: "img", "aria-describedby": "timeline-help" });
  canvas.setAttribute("aria-label", "Timeline of " + lanes.length + " streams with " + format.count(lanes.reduce((sum, lane) => sum + lane.start.length, 0)) + " ops over " + format.time(run.end));
  const details = element("div", { class: "details", id: "timeline-details", role: "status" });
  let found = new Set();
  let view = null;  // of ops as [lane, position]

  const name = (lane, i) => clean(report.text(ops.text[lanes[lane].row[i]]), 80);

  const same = (a, b) => a[0] === b[0] && a[1] === b[1];

  /** The instance of an op that ended last before a time: what was awaited. */
  const awaited = (id, before) => {
    let best = null;
    for (const [lane, i] of byOp.get(id) || [])
      if (lanes[lane].end[i] <= before && (!best || lanes[lane].end[i] > lanes[best[0]].end[best[1]])) best = [lane, i];
    return best;
  };
  const jump = (place, text) => element("button", { type: "button", class: "link", text, onclick: () => { view.choose(place); view.reveal(lanes[place[0]].start[place[1]], lanes[place[0]].end[place[1]]); canvas.focus(); } });

  const waits = (lane, i, facts) => {
    const start = lanes[lane].start[i];
    const free = i > 0 ? lanes[lane].end[i - 1] : null;
    const items = facts.waits.map((id) => {
      const place = awaited(id, start);
      if (!place) return element("li", { text: "for an op of the step before" });
      const end = lanes[place[0]].end[place[1]];
      const late = free === null ? 0 : end - free;
      const cost = late > 0 ? "; its stream stood still for it " + format.time(late) : "; it had ended " + format.time(start - end) + " before";
      return element("li", {}, "for ", jump(place, name(...place) + " on " + clean(lanes[place[0]].name, 40)), cost);
    });
    return items.length ? element("div", {}, "Waits", element("ul", {}, ...items)) : element("div", { text: "Waits for no other stream." });
  };

  const describe = (place) => {
    if (!place) return report.clear(details, element("p", { class: "muted", text: "Point at an op to see it here." }));
    const [laneNumber, i] = place;
    const lane = lanes[laneNumber];
    const row = lane.row[i];
    const duration = lane.end[i] - lane.start[i];
    const where = clean(report.text(ops.segment[row]), 40) + " " + (lane.instance[i] + 1) + " of " + counts.get(ops.segment[row]) + (lane.omitted[i] ? ", about so" : "");
    const idle = i > 0 ? lane.start[i] - lane.end[i - 1] : null;
    const facts = run.plan && run.plan.facts.get(ops.op[row]);
    const pairs = [
      ["kind", clean(report.text(ops.kind[row]), 60)], ["stream", clean(lane.name, 60)], ["segment", where], ["op", String(ops.op[row])],
      ["start", format.time(lane.start[i]) + " (" + format.count(lane.start[i]) + " ns)"], ["duration", format.time(duration) + " (" + format.count(duration) + " ns)"],
      ["stream idle before", idle === null ? "first op" : format.time(idle)],
      ["bytes", facts ? format.bytes(facts.bytes) + " (" + format.count(facts.bytes) + ")" : "not stored"],
      ["bandwidth", facts ? format.rate(facts.bytes, duration, "B") : "not stored"],
      ["FLOPs", facts ? (facts.flops ? format.flops(facts.flops) + ", " + format.rate(facts.flops, duration, "FLOP") : "none") : "not stored"],
    ];
    return report.clear(details,
      element("h3", {}, name(...place)),
      element("dl", { class: "facts" }, ...pairs.map(([title, value]) => element("div", { "data-fact": title }, element("dt", { text: title }), element("dd", { text: value })))),
      facts ? waits(laneNumber, i, facts) : null);
  };

  const draw = (context, v) => {
    const begun = performance.now();
    context.fillStyle = report.colours.page("outside");
    if (v.x(0) > left) context.fillRect(left, top, v.x(0) - left, v.height - top);
    if (v.x(run.end) < v.width) context.fillRect(Math.max(left, v.x(run.end)), top, v.width, v.height - top);
    report.timeAxis(context, v, v.height);
    const colours = report.kindGroups.map((group) => group.colour);
    lanes.forEach((lane, number) => {
      const y = top + number * pitch + 4;
      let painted = -1;  // pixels up to here are full
      let painting = -1;
      for (let i = report.upperBound(lane.end, v.from); i < lane.start.length && lane.start[i] <= v.to; ++i) {
        const x = Math.max(left, v.x(lane.start[i]));
        const end = Math.min(v.width, v.x(lane.end[i]));
        if (end <= painted && end - x < 1) continue;
        const width = Math.max(end - x, 1);
        const group = groups[lane.row[i]];
        if (group !== painting) context.fillStyle = colours[(painting = group)];
        context.globalAlpha = lane.omitted[i] ? 0.72 : 1;
        context.fillRect(x, y, width > 3 ? width - 0.5 : width, bar);
        painted = Math.ceil(x + width);
        if (width > 46) {
          context.globalAlpha = 1;
          context.fillStyle = "#10151a";
          painting = -1;
          context.font = "11px system-ui, sans-serif";
          context.textBaseline = "middle";
          context.fillText(clean(report.text(ops.text[lane.row[i]]), 60).slice(0, Math.floor((width - 8) / 6.2)), x + 4, y + bar / 2);
        }
      }
      context.globalAlpha = 1;
      context.fillStyle = report.colours.page("paper");
      context.fillRect(0, y - 4, left, pitch);
      context.fillStyle = report.colours.page("ink");
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.textAlign = "left";
      context.fillText(clean(lane.name, 14), 2, y + bar / 2);
      if (found.size) outline(context, v, number, y);
    });
    for (const [place, colour, wide] of [[v.hovered, "ink", 1.5], [v.chosen, "accent", 3]])
      if (place) box(context, v, place, report.colours.page(colour), wide);
    canvas.dataset.redraw = (performance.now() - begun).toFixed(2);
  };
  const outline = (context, v, number, y) => {
    const lane = lanes[number];
    context.fillStyle = report.colours.page("accent");
    let painted = -1;
    for (let i = report.upperBound(lane.end, v.from); i < lane.start.length && lane.start[i] <= v.to; ++i) {
      if (!found.has(ops.text[lane.row[i]])) continue;
      const x = Math.max(left, v.x(lane.start[i]));
      const width = Math.max(2, v.x(lane.end[i]) - x);
      if (x + width <= painted) continue;
      context.fillRect(x, y + bar, width, 4);
      painted = x + width;
    }
  };
  const box = (context, v, [number, i], colour, wide) => {
    const lane = lanes[number];
    if (lane.end[i] < v.from || lane.start[i] > v.to) return;
    const x = Math.max(left, v.x(lane.start[i]));
    context.strokeStyle = colour;
    context.lineWidth = wide;
    context.strokeRect(x, top + number * pitch + 3, Math.max(2, Math.min(v.width, v.x(lane.end[i])) - x), bar + 2);
    context.lineWidth = 1;
  };

  const at = (x, y) => {
    const number = Math.floor((y - top) / pitch);
    if (number < 0 || number >= lanes.length || x < left) return null;
    const lane = lanes[number];
    const slack = view.time(x + 2) - view.time(x);
    const i = report.upperBound(lane.end, view.time(x) - slack);
    return i < lane.start.length && lane.start[i] <= view.time(x) + slack ? [number, i] : null;
  };

  const step = (by) => {
    const [number, i] = view.chosen || [0, -1];
    const next = Math.max(0, Math.min(lanes[number].start.length - 1, i + by));
    view.choose([number, next]);
    view.reveal(lanes[number].start[next], lanes[number].end[next]);
  };
  const change = (by) => {
    const [number, i] = view.chosen || [-by, 0];
    const other = Math.max(0, Math.min(lanes.length - 1, number + by));
    const time = view.chosen ? lanes[number].start[i] : first;
    const next = Math.max(0, Math.min(lanes[other].start.length - 1, report.upperBound(lanes[other].start, time) - 1));
    view.choose([other, next]);
    view.reveal(lanes[other].start[next], lanes[other].end[next]);
  };
  const keys = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => change(1), ArrowUp: () => change(-1), Escape: () => view.choose(null), "/": () => search.focus() };

  // ---- Search ----
  const result = element("span", { class: "muted", id: "timeline-found", role: "status" });
  const search = element("input", { type: "search", id: "timeline-search", autocomplete: "off", placeholder: "op, such as layers.3.qkv" });
  const look = () => {
    const wanted = search.value.trim().toLowerCase();
    found = new Set();
    if (wanted) for (let i = 0; i < ops.count; ++i) if (!found.has(ops.text[i]) && report.text(ops.text[i]).toLowerCase().includes(wanted)) found.add(ops.text[i]);
    let count = 0;
    for (const lane of lanes) for (const row of lane.row) if (found.has(ops.text[row])) ++count;
    result.textContent = wanted ? format.count(count) + (count === 1 ? " op" : " ops") : "";
    view.later();
  };
  /** The next found op by start, over all streams; of those that start together by stream. */
  const next = (by) => {
    const places = [];
    lanes.forEach((lane, number) => { for (let i = 0; i < lane.row.length; ++i) if (found.has(ops.text[lane.row[i]])) places.push([number, i]); });
    if (!places.length) return;
    const start = ([number, i]) => lanes[number].start[i];
    places.sort((a, b) => start(a) - start(b) || a[0] - b[0]);
    const here = view.chosen ? places.findIndex((place) => same(place, view.chosen)) : -1;
    const place = places[here < 0 ? (by > 0 ? 0 : places.length - 1) : (here + by + places.length) % places.length];
    view.choose(place);
    view.reveal(start(place), lanes[place[0]].end[place[1]]);
  };
  search.addEventListener("input", look);
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") next(event.shiftKey ? -1 : 1); });

  const used = new Set(groups);
  const legend = element("ul", { class: "legend", "aria-label": "Kinds of ops" }, ...report.kindGroups.map((group, number) => {
    if (!used.has(number)) return null;
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = group.colour;
    return element("li", {}, swatch, group.name);
  }));
  const notes = [];
  if (first < 0) notes.push("The grey part before 0 is the end of the step before: ops that need nothing of it run ahead.");
  for (const [segment, count] of omitted) notes.push("Of " + counts.get(segment) + " runs of \u201c" + clean(report.text(segment), 40) + "\u201d the times of " + count + " were not kept: they are shown paler, as the last one that was.");
  report.clear(holder,
    element("div", { class: "tools" }, element("label", {}, "Find ", search), element("button", { type: "button", text: "Previous", onclick: () => next(-1) }), element("button", { type: "button", text: "Next", onclick: () => next(1) }), result, ...report.viewTools(() => view)),
    canvas, legend, element("p", { id: "timeline-help", class: "muted screen", text: "Drag pans, Ctrl with the wheel zooms, a click keeps an op. With Tab the canvas takes keys: arrows go from op to op and from stream to stream, + and \u2212 zoom, Shift with arrows pans, Home shows the whole step, / searches." }), ...notes.map((text) => element("p", { class: "muted", text })), details);
  view = new report.TimeView(canvas, { first, last, left, height: top + lanes.length * pitch + 6, draw, at, describe, same, keys });
  view.fit();
  return { redraw: () => view.draw(), resize: () => view.resize(), stop: () => {}, view, lanes, at };
};

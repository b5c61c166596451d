"use strict";
// Runs as the parts of the page want them. Each is unpacked when it is first looked at.

report.text = (number) => report.data.texts[number];

/** The figures that decide whether a run fits, as far as they are stored. An engine with a caching allocator needs the memory
    that the allocator has reserved, and memory outside it: `device` is both, `outside` the latter. Other engines need what they allocate. */
report.needs = (memory) => {
  const stored = (value) => (typeof value === "number" ? value : null);
  const [reserved, device, allocated] = [memory.reserved_bytes, memory.device_bytes, memory.allocated_bytes].map(stored);
  const deciding = device ?? reserved ?? allocated;
  const word = device !== null ? "of the device" : reserved !== null ? "reserved" : "allocated";
  return { reserved, device, deciding, word, outside: device !== null && reserved !== null ? device - reserved : null, capacity: stored(memory.capacity_bytes) };
};

/** Entries with those that come again: [first, count, copies, period] as report_data.hpp has it. `entry(i, later)` is called
    for each in order, i a position among those that stand once. */
const again = (repeats, count, entry) => {
  let next = 0;
  let full = 0;
  for (const [first, length, copies, period] of repeats) {
    for (; full < first; ++full) entry(next++, 0);
    for (let k = 0; k <= copies; ++k) for (let i = 0; i < length; ++i) entry(next + i, k * period);
    next += length;
    full += length * (copies + 1);
  }
  while (next < count) entry(next++, 0);
};

const unpackOps = (packed) => {
  const row = report.unpack(packed.row, true);
  const ofRow = (column) => {
    const values = report.unpack(column, true);
    return row.map((number) => values[number]);
  };
  return { count: row.length, op: ofRow(packed.op), text: ofRow(packed.text), stream: ofRow(packed.stream), kind: ofRow(packed.kind), segment: ofRow(packed.segment), instance: report.unpack(packed.instance, true), start: report.unpack(packed.start, true), duration: report.unpack(packed.duration) };
};

/** One lane a stream: all ops of the step by start, each { row of the stored ops, instance }. */
const lanesOf = (ops, copies) => {
  const lanes = new Map();
  const add = (row, instance, later, omitted) => {
    const stream = ops.stream[row];
    if (!lanes.has(stream)) lanes.set(stream, []);
    const start = ops.start[row] + later;
    lanes.get(stream).push({ row, instance, start, end: start + ops.duration[row], omitted });
  };
  const instances = new Map();  // [rows, shift] by segment and instance
  for (let i = 0; i < ops.count; ++i) {
    const key = ops.segment[i] + " " + ops.instance[i];
    if (!instances.has(key)) instances.set(key, [[], 0]);
    instances.get(key)[0].push(i);
    add(i, ops.instance[i], 0, false);
  }
  for (const [segment, instance, copy, shift, omitted] of copies) {
    const [rows, before] = instances.get(segment + " " + instance) || [[], 0];
    if (!omitted) instances.set(segment + " " + copy, [rows, before + shift]);
    for (const row of rows) add(row, copy, before + shift, omitted === 1);
  }
  const known = ["compute", "all_gather", "reduce_scatter", "outer", "exchange", "h2d", "d2h"];
  const order = (name) => (known.includes(name) ? known.indexOf(name) : known.length);
  return Array.from(lanes, ([stream, list]) => {
    list.sort((a, b) => a.start - b.start || a.end - b.end);
    for (let i = 1; i < list.length; ++i) {
      const [before, after] = [list[i - 1], list[i]];
      if (after.start >= before.end) continue;
      if (after.omitted) {
        after.start = before.end;
        after.end = Math.max(after.end, after.start);
      } else if (before.omitted) before.end = Math.max(before.start, after.start);
    }
    return {
      name: report.text(stream),
      row: Int32Array.from(list, (op) => op.row),
      instance: Int32Array.from(list, (op) => op.instance),
      omitted: Uint8Array.from(list, (op) => (op.omitted ? 1 : 0)),
      start: Float64Array.from(list, (op) => op.start),
      end: Float64Array.from(list, (op) => op.end),
    };
  }).sort((a, b) => order(a.name) - order(b.name) || (a.name < b.name ? -1 : 1));
};

const planOf = (number) => {
  const plan = report.data.plans[number];
  if (!plan || plan.facts) return plan;
  const ops = { id: report.unpack(plan.ops.id, true), bytes: report.unpack(plan.ops.bytes), flops: report.unpack(plan.ops.flops), waits: report.unpack(plan.ops.waits), awaited: report.unpack(plan.ops.awaited, true) };
  plan.facts = new Map();
  for (let i = 0, at = 0; i < ops.id.length; at += ops.waits[i++])
    plan.facts.set(ops.id[i], { bytes: ops.bytes[i], flops: ops.flops[i], waits: Array.from(ops.awaited.subarray(at, at + ops.waits[i])) });
  const packed = plan.buffers;
  plan.held = { text: report.unpack(packed.text, true), category: report.unpack(packed.category), pool: report.unpack(packed.pool), offset: report.unpack(packed.offset, true), size: report.unpack(packed.size, true), persistent: report.unpack(packed.persistent) };
  return plan;
};

class Run {
  constructor(packed, index) {
    this.packed = packed;
    this.index = index;
    this.result = packed.result;
    this.source = packed.result.source;
    this.label = packed.result.name || packed.result.run_id.slice(0, 8) || "run " + (index + 1);
  }
  get plan() { return this.packed.plan === null ? null : planOf(this.packed.plan); }
  get ops() { return (this.unpackedOps ??= unpackOps(this.packed.ops)); }
  get step() { return this.result.time.median_step_ns; }
  /** Where the timeline's step ends. */
  get end() { return this.packed.end; }

  /** { lanes, omitted: how many runs of a segment, counts: runs of each, first, last, byOp }: of a step. */
  get timeline() {
    if (this.drawn) return this.drawn;
    const { copies } = this.packed.ops;
    const lanes = lanesOf(this.ops, copies);
    const counts = new Map();
    for (let i = 0; i < this.ops.count; ++i) counts.set(this.ops.segment[i], Math.max(counts.get(this.ops.segment[i]) || 0, this.ops.instance[i] + 1));
    const omitted = new Map();
    for (const [segment, , copy, , isOmitted] of copies) {
      counts.set(segment, Math.max(counts.get(segment) || 0, copy + 1));
      if (isOmitted) omitted.set(segment, (omitted.get(segment) || 0) + 1);
    }
    let [first, last] = [0, this.end || 0];
    const byOp = new Map();
    lanes.forEach((lane, number) => {
      for (let i = 0; i < lane.start.length; ++i) {
        first = Math.min(first, lane.start[i]);
        last = Math.max(last, lane.end[i]);
        const op = this.ops.op[lane.row[i]];
        if (!byOp.has(op)) byOp.set(op, []);
        byOp.get(op).push([number, i]);
      }
    });
    return (this.drawn = { lanes, omitted, counts, first, last, byOp });
  }

  /** { at, values: a column a category, total, peak: position of the largest total }; null without. For an engine with a caching
      allocator: the allocated bytes, without the context and NCCL ("runtime"), which are outside it. */
  get memory() {
    if (this.unpackedMemory !== undefined) return this.unpackedMemory;
    const packed = this.packed.memory;
    const once = report.unpack(packed.at, true);
    if (once.length === 0) return (this.unpackedMemory = null);
    const [count, change, category, bytes] = [packed.count, packed.change, packed.category, packed.bytes].map((column) => report.unpack(column));
    const begin = [0];
    for (const changes of count) begin.push(begin[begin.length - 1] + changes);
    let points = 0;
    again(packed.again, once.length, () => ++points);
    const at = new Float64Array(points);
    const values = report.data.categories.map(() => new Float64Array(points));
    const total = new Float64Array(points);
    const now = report.data.categories.map(() => 0);
    const outside = report.needs(this.result.memory).reserved !== null ? report.data.categories.indexOf("runtime") : -1;
    let [i, peak] = [0, 0];
    again(packed.again, once.length, (point, later) => {
      at[i] = once[point] + later;
      for (let k = begin[point]; k < begin[point + 1]; ++k) now[category[change[k]]] += bytes[change[k]];
      for (let c = 0; c < now.length; ++c) {
        if (c === outside) continue;
        values[c][i] = now[c];
        total[i] += now[c];
      }
      if (total[i] > total[peak]) peak = i;
      ++i;
    });
    return (this.unpackedMemory = { at, values, total, peak });
  }

  /** Stretches of transient buffers: { buffer, slot, begin, end, until }; null where not known. */
  get buffers() {
    if (this.unpackedBuffers !== undefined) return this.unpackedBuffers;
    const packed = this.packed.buffers;
    if (!packed || !this.plan) return (this.unpackedBuffers = null);
    const once = { buffer: report.unpack(packed.buffer, true), slot: report.unpack(packed.slot), begin: report.unpack(packed.begin, true), duration: report.unpack(packed.duration) };
    const all = { buffer: [], slot: [], begin: [], end: [], until: packed.until };
    again(packed.again, once.begin.length, (i, later) => {
      all.buffer.push(once.buffer[i]);
      all.slot.push(once.slot[i]);
      all.begin.push(once.begin[i] + later);
      all.end.push(once.begin[i] + later + once.duration[i]);
    });
    return (this.unpackedBuffers = all);
  }

  /** Columns of steps; null without. */
  get steps() {
    if (this.unpackedSteps !== undefined) return this.unpackedSteps;
    const packed = this.packed.steps;
    if (!packed) return (this.unpackedSteps = null);
    return (this.unpackedSteps = { ...packed, step: report.unpack(packed.step, true), skipped: report.unpack(packed.skipped) });
  }
}

report.runs = report.data.runs.map((packed, index) => new Run(packed, index));

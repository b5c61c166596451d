"use strict";
// A prediction beside a measurement: signed errors of each figure, and of time by kind of op.

report.fidelity = (holder) => {
  const { element, format, clean } = report;
  const simulated = report.runs.filter((run) => run.source === "simulated");
  const measured = report.runs.filter((run) => run.source === "measured");
  if (!simulated.length || !measured.length) {
    report.clear(holder, report.note("This page has " + (simulated.length ? "no measured run" : "no simulated run") + ": a prediction is held against a measurement where it has both."));
    return;
  }
  const option = (run) => element("option", { value: String(run.index), text: clean(run.label, 60) + " (" + run.source + ", plan " + clean(run.result.plan_hash.slice(0, 8), 8) + ")" });
  const predictedChoice = element("select", { id: "predicted" }, ...simulated.map(option));
  const measuredChoice = element("select", { id: "measured" }, ...measured.map(option));
  const body = element("div", { id: "errors" });

  const alike = (a, b) => a.result.model.name === b.result.model.name && a.result.cluster.gpus === b.result.cluster.gpus;
  /** The closest prediction: of the same plan and GPU, of the same plan, of the same model and number of GPUs. */
  const closest = (run) => {
    const samePlan = simulated.filter((one) => one.result.plan_hash === run.result.plan_hash);
    return samePlan.find((one) => one.result.cluster.gpu === run.result.cluster.gpu) || samePlan[0] || simulated.find((one) => alike(one, run)) || simulated[0];
  };

  const row = (name, predicted, actual, show) => {
    const known = typeof predicted === "number" && typeof actual === "number";
    const error = known && actual !== 0 ? (predicted - actual) / Math.abs(actual) : null;
    const difference = known ? format.sign(predicted - actual) + show(Math.abs(predicted - actual)) : "n/a";
    return [name, show(predicted), show(actual), difference, format.signed(error)];
  };
  const sums = (run, key) => {
    const { ops } = run;
    const list = new Map();
    for (const lane of run.timeline.lanes)
      for (let i = 0; i < lane.row.length; ++i) {
        const name = report.text(ops[key][lane.row[i]]);
        list.set(name, (list.get(name) || 0) + lane.end[i] - lane.start[i]);
      }
    return list;
  };
  const columns = [{ title: "figure", text: true }, { title: "simulated", number: true }, { title: "measured", number: true }, { title: "difference", number: true }, { title: "error", number: true }];

  const draw = () => {
    const predicted = report.runs[Number(predictedChoice.value)];
    const actual = report.runs[Number(measuredChoice.value)];
    const [p, m] = [predicted.result, actual.result];
    const [predictedBytes, actualBytes] = [p.memory.categories || {}, m.memory.categories || {}];
    const notes = [];
    if (p.plan_hash !== m.plan_hash) notes.push("These two are of different plans: the errors are those of comparing two things.");
    if (p.cluster.gpu !== m.cluster.gpu) notes.push("The prediction is for " + clean(p.cluster.gpu, 40) + ", the measurement is of " + clean(m.cluster.gpu, 40) + ".");
    const spans = [["median step", "median_step_ns"], ["step", "step_ns"], ["compute", "compute_ns"], ["communication", "communication_ns"], ["exposed communication", "exposed_communication_ns"], ["idle", "idle_ns"]];
    const figures = [
      ...spans.map(([name, key]) => row(name, p.time[key], m.time[key], format.time)),
      row("tokens/s per GPU", p.time.tokens_per_second_per_gpu, m.time.tokens_per_second_per_gpu, (value) => format.count(value)),
      row("TFLOP/s per GPU", p.time.tflops_per_gpu, m.time.tflops_per_gpu, (value) => format.number(value)),
      row("memory allocated", p.memory.allocated_bytes, m.memory.allocated_bytes, format.bytes),
      ...(typeof p.memory.reserved_bytes === "number" || typeof m.memory.reserved_bytes === "number" ? [row("memory reserved", p.memory.reserved_bytes, m.memory.reserved_bytes, format.bytes), row("memory of the device", p.memory.device_bytes, m.memory.device_bytes, format.bytes)] : []),
      row("memory peak", p.memory.peak_bytes, m.memory.peak_bytes, format.bytes),
      ...report.data.categories.filter((name) => predictedBytes[name] || actualBytes[name]).map((name) => row("\u2003" + name, predictedBytes[name], actualBytes[name], format.bytes)),
      row("sent by all-gather", p.traffic.all_gather_bytes, m.traffic.all_gather_bytes, format.bytes),
      row("sent by reduce-scatter", p.traffic.reduce_scatter_bytes, m.traffic.reduce_scatter_bytes, format.bytes),
      row("sent by all-reduce", p.traffic.all_reduce_bytes, m.traffic.all_reduce_bytes, format.bytes),
    ];
    const parts = [report.table("Figures of a step", columns, figures)];
    if (predicted.ops.count && actual.ops.count) {
      const times = element("div");
      parts.push(times);
      for (const [title, key] of [["Time by stream", "stream"], ["Time by kind of op", "kind"]]) {
        const [a, b] = [sums(predicted, key), sums(actual, key)];
        const names = [...new Set([...b.keys(), ...a.keys()])].sort((x, y) => (b.get(y) || 0) - (b.get(x) || 0));
        times.append(report.table(title, columns, names.map((name) => row(clean(name, 60), a.get(name) || 0, b.get(name) || 0, format.time))));
      }
    } else notes.push("Time by kind of op: op times are not stored for " + (actual.ops.count ? "the simulated run." : "the measured run."));
    report.clear(body, ...notes.map(report.note), element("div", { class: "columns" }, ...parts));
  };
  measuredChoice.addEventListener("change", () => {
    predictedChoice.value = String(closest(report.runs[Number(measuredChoice.value)]).index);
    draw();
  });
  predictedChoice.addEventListener("change", draw);
  predictedChoice.value = String(closest(measured[0]).index);
  report.clear(holder, element("div", { class: "tools" }, element("label", {}, report.badge("simulated"), predictedChoice), element("label", {}, report.badge("measured"), measuredChoice)),
    element("p", { class: "muted", text: "Error = (simulated \u2212 measured) / measured: + is predicted too much, \u2212 too little." }), body);
  draw();
};

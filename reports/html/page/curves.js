"use strict";
// Loss, gradient norm and throughput of runs, over steps or tokens.

report.curves = (holder) => {
  const { element, format, clean } = report;
  const runs = report.runs.filter((run) => run.steps);
  if (runs.length === 0) {
    report.clear(holder, report.note("No run of this page has steps: simulations predict one step, and only measured runs have many."));
    return null;
  }
  const on = new Set(runs.map((run) => run.index));
  const colour = (run) => report.colours.runs[runs.indexOf(run) % report.colours.runs.length];
  let over = "step";
  let plots = [];

  /** The abscissa of each step: its number, or tokens with a label up to it where they are stored. */
  const abscissa = (run) => {
    if (over === "step") return Array.from(run.steps.step);
    return Array.from(run.steps.step, (step) => step * tokensOf(run));
  };
  /** Tokens of a whole batch; without a known configuration, tokens of a step that counted them. */
  const tokensOf = (run) => {
    const { config } = run.result;
    return config ? config.global_batch * config.seq_len : run.steps.tokens.find((tokens) => tokens > 0) || 1;
  };
  const perGpu = (run) => (duration) => (duration > 0 && run.result.cluster.gpus > 0 ? (tokensOf(run) / run.result.cluster.gpus / duration) * 1e9 : null);
  const metrics = [
    { title: "Loss", unit: "", values: (run) => run.steps.loss, evaluations: true, show: (value) => format.number(value, 6) },
    { title: "Gradient norm", unit: "", values: (run) => run.steps.grad_norm, show: (value) => format.number(value, 6) },
    { title: "Tokens/s per GPU", unit: "", values: (run) => run.steps.duration.map(perGpu(run)), show: (value) => format.count(Math.round(value)) },
    { title: "Step time, ms", unit: "ms", values: (run) => run.steps.duration.map((ns) => (ns === null ? null : ns / 1e6)), show: (value) => format.number(value, 6) + " ms" },
    { title: "Learning rate", unit: "", values: (run) => run.steps.learning_rate, show: (value) => format.number(value, 6) },
  ];

  const series = (metric) => {
    const list = [];
    for (const run of runs) {
      if (!on.has(run.index)) continue;
      const values = metric.values(run);
      if (values.some((value) => value !== null)) list.push({ run, x: abscissa(run), values, evaluation: false });
      const evaluations = run.packed.evaluations;
      if (!metric.evaluations || !evaluations.length) continue;
      const each = over === "step" ? 1 : tokensOf(run);
      list.push({ run, x: evaluations.map(([step]) => step * each), values: evaluations.map(([, loss]) => loss), evaluation: true });
    }
    return list;
  };

  const create = (metric, chart, readout) => {
    const list = series(metric);
    report.clear(chart);
    if (!list.length) {
      readout.textContent = "Nothing stored.";
      return null;
    }
    const ascending = (one) => {
      const order = one.x.map((_, i) => i).sort((a, b) => one.x[a] - one.x[b]);
      const kept = order.filter((i, at) => at + 1 === order.length || one.x[i] !== one.x[order[at + 1]]);
      return [kept.map((i) => one.x[i]), kept.map((i) => one.values[i])];
    };
    const data = uPlot.join(list.map(ascending));
    const label = (one) => clean(one.run.label, 40) + (one.evaluation ? ", evaluation" : "");
    const axis = { stroke: report.colours.page("ink"), grid: { stroke: report.colours.page("grid"), width: 1 }, ticks: { stroke: report.colours.page("line"), width: 1, size: 5 }, font: "12px system-ui, sans-serif" };
    const last = list.map((one) => label(one) + " " + metric.show([...one.values].reverse().find((value) => value !== null))).join("; ");
    readout.textContent = "Last: " + last;
    chart.setAttribute("aria-label", metric.title + " over " + over + "s, measured. Last values: " + last.slice(0, 400));
    const plot = new uPlot({
      width: Math.max(240, chart.clientWidth), height: 240,
      legend: { show: false },
      cursor: { sync: { key: "curves" }, drag: { x: true, y: false } },
      scales: { x: { time: false } },
      axes: [{ ...axis, label: over === "step" ? "step" : "tokens", labelSize: 20, labelFont: axis.font, size: 34, values: (u, ticks) => ticks.map((tick) => (over === "step" ? (Number.isInteger(tick) ? String(tick) : "") : tick >= 1e9 ? tick / 1e9 + " B" : tick >= 1e6 ? tick / 1e6 + " M" : tick >= 1e3 ? tick / 1e3 + " k" : String(tick))) }, { ...axis, size: 62, values: (u, ticks) => ticks.map((tick) => (Math.abs(tick) >= 1000 ? format.count(tick) : format.number(tick, 6))) }],
      series: [{}, ...list.map((one) => ({ label: label(one), stroke: colour(one.run), width: 1.5, dash: one.evaluation ? [4, 4] : undefined, spanGaps: one.evaluation, points: { show: one.evaluation || one.x.length < 60, size: one.evaluation ? 8 : 5 } }))],
      hooks: { setCursor: [(u) => {
        const i = u.cursor.idx;
        if (i === null || i === undefined) return;
        const there = list.map((one, s) => [label(one), u.data[s + 1][i]]).filter(([, value]) => value !== null && value !== undefined);
        if (there.length) readout.textContent = (over === "step" ? "Step " : "Tokens ") + format.count(u.data[0][i]) + ": " + there.map(([name, value]) => name + " " + metric.show(value)).join("; ");
      }] },
    }, data, chart);
    const move = (by) => {
      const i = Math.max(0, Math.min(u_length(plot) - 1, (plot.cursor.idx ?? 0) + by));
      plot.setCursor({ left: plot.valToPos(plot.data[0][i], "x"), top: 20 });
    };
    chart.onkeydown = (event) => {
      if (event.key === "ArrowRight") move(event.shiftKey ? 20 : 1);
      else if (event.key === "ArrowLeft") move(event.shiftKey ? -20 : -1);
      else return;
      event.preventDefault();
    };
    return plot;
  };
  const u_length = (plot) => plot.data[0].length;

  const charts = metrics.map((metric) => ({
    metric,
    chart: element("div", { class: "chart", role: "img", tabindex: "0", "aria-label": metric.title, "data-metric": metric.title }),
    readout: element("p", { class: "muted", role: "status" }),
  }));
  const draw = () => {
    for (const plot of plots) plot.destroy();
    plots = charts.map(({ metric, chart, readout }) => create(metric, chart, readout)).filter((plot) => plot);
  };
  const axes = element("select", { id: "abscissa", onchange: (event) => { over = event.target.value; draw(); } }, element("option", { value: "step", text: "steps" }), element("option", { value: "token", text: "tokens" }));
  const legend = element("ul", { class: "legend", "aria-label": "Runs with steps" }, ...runs.map((run) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = colour(run);
    return element("li", {}, element("button", { type: "button", "aria-pressed": "true", onclick: (event) => {
      if (on.has(run.index)) on.delete(run.index);
      else on.add(run.index);
      event.currentTarget.setAttribute("aria-pressed", String(on.has(run.index)));
      draw();
    } }, swatch, clean(run.label, 60)), report.badge(run.source));
  }));
  const notes = runs.filter((run) => run.steps.step.length < run.steps.of).map((run) => clean(run.label, 60) + ": " + format.count(run.steps.step.length) + " of " + format.count(run.steps.of) + " steps are drawn, the lowest and highest loss of each part.");
  report.clear(holder, element("div", { class: "tools" }, element("label", {}, "Over ", axes), element("span", { class: "muted", text: "Drag to zoom, double click for all. Tokens are those of whole batches." })), legend,
    element("div", { class: "columns" }, ...charts.map(({ metric, chart, readout }) => element("div", {}, element("h3", { text: metric.title }), chart, readout))), ...notes.map((text) => element("p", { class: "muted", text })));
  draw();
  return { redraw: draw, resize: () => plots.forEach((plot) => plot.setSize({ width: Math.max(240, plot.root.parentElement.clientWidth), height: 240 })) };
};

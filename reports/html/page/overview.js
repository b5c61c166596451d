"use strict";
// The table of runs, their configurations side by side, and the figures of the chosen one.

report.overview = (choose) => {
  const { element, format, clean } = report;
  const config = (run) => run.result.config || {};  // none of what others have left
  /** Of engines without a caching allocator there is nothing reserved beside what is allocated. */
  const reservedText = (run) => {
    const { reserved } = report.needs(run.result.memory);
    return reserved === null && run.result.plan ? "none" : format.bytes(reserved);
  };
  const columns = [
    { title: "Run", value: (run) => run.label, text: true },
    { title: "Source", value: (run) => run.source, text: true, node: (run) => report.badge(run.source) },
    { title: "Engine", value: (run) => run.result.engine || "not stored", text: true },
    { title: "Model", value: (run) => run.result.model.name, text: true },
    { title: "GPUs", value: (run) => run.result.cluster.gpus, show: (run) => (run.result.cluster.gpus ?? "?") + " x " + clean(run.result.cluster.gpu || "not stored", 40) },
    { title: "Fits", line: true, value: (run) => (run.result.memory.fits ? 1 : 0), show: (run) => report.fitsText(run.result.memory) },
    { title: "Memory peak", number: true, value: (run) => run.result.memory.peak_bytes, show: (run) => format.bytes(run.result.memory.peak_bytes) },
    { title: "Reserved", number: true, value: (run) => report.needs(run.result.memory).reserved ?? -1, show: (run) => reservedText(run) },
    { title: "Strategy", value: (run) => config(run).strategy || "not stored", text: true },
    { title: "Batch", value: (run) => config(run).global_batch, show: (run) => (config(run).micro_batch ? config(run).micro_batch + " x " + config(run).microbatches + " x " + config(run).dp_outer * config(run).dp_shard : "not stored") },
    { title: "Median step", number: true, value: (run) => run.step, show: (run) => format.time(run.step) },
    { title: "Tokens/s per GPU", number: true, value: (run) => run.result.time.tokens_per_second_per_gpu, show: (run) => format.count(run.result.time.tokens_per_second_per_gpu) },
    { title: "MFU", number: true, value: (run) => run.result.time.mfu, show: (run) => format.percent(run.result.time.mfu) },
    { title: "Overlap", number: true, value: (run) => run.result.time.overlap_fraction, show: (run) => format.percent(run.result.time.overlap_fraction) },
    { title: "Written", line: true, value: (run) => run.result.created_unix_ns, show: (run) => format.date(run.result.created_unix_ns / 1e6) },
  ];
  const holder = document.getElementById("runs");
  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  let order = { column: null, down: false };
  let chosen = null;

  const matches = (run) => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter((word) => word);
    const text = columns.map((column) => (column.show ? column.show(run) : column.value(run))).join(" ").slice(0, 4000).toLowerCase() + " " + run.result.run_id;
    return wanted.every((word) => text.includes(word));
  };

  const cell = (column, run, index) => {
    const shownText = column.node ? column.node(run) : clean(column.show ? column.show(run) : column.value(run), 80);
    const content = index === 0 ? element("button", { type: "button", class: "link", onclick: () => choose(run.index), "aria-label": "Show run " + clean(run.label, 80) }, shownText) : shownText;
    return element(index === 0 ? "th" : "td", { class: column.number ? "number" : column.text ? "text" : column.line ? "line" : null, scope: index === 0 ? "row" : null, "data-label": column.title }, content);
  };

  const draw = () => {
    const runs = report.runs.filter(matches);
    if (order.column) {
      const value = order.column.value;
      runs.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (order.down ? -1 : 1));
    }
    shown.textContent = runs.length + " of " + report.runs.length + (report.runs.length === 1 ? " run" : " runs");
    const heads = columns.map((column) => {
      const sorted = order.column === column ? (order.down ? "descending" : "ascending") : "none";
      const mark = sorted === "none" ? "" : order.down ? " \u2193" : " \u2191";
      return element("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": sorted },
        element("button", { type: "button", text: column.title + mark, onclick: () => {
          order = { column, down: order.column === column ? !order.down : Boolean(column.number) };
          draw();
          holder.querySelectorAll("thead button")[columns.indexOf(column)].focus();
        } }));
    });
    const rows = runs.map((run) => element("tr", { class: run.index === chosen ? "chosen" : null }, ...columns.map((column, i) => cell(column, run, i))));
    report.clear(holder, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of runs" },
      element("table", { class: "cards" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows))));
  };
  filter.addEventListener("input", draw);

  // ---- Configurations ----
  const flat = (run) => {
    const { result } = run;
    const fields = { source: run.source, model: result.model.name, engine: result.engine, gpu: result.cluster.gpu, gpus: result.cluster.gpus, nodes: result.cluster.nodes, network: result.cluster.network };
    for (const [name, value] of Object.entries(config(run))) fields[name] = Array.isArray(value) ? value.join(", ") || "none" : value ?? "none";
    return { ...fields, calibration: result.calibration || "none", cost_model_version: result.cost_model_version || "none", plan_hash: result.plan_hash, version: result.version };
  };
  const differences = document.getElementById("differences");
  const drawConfigurations = () => {
    const all = report.runs.map(flat);
    const names = [...new Set(all.flatMap((fields) => Object.keys(fields)))];
    const text = (value) => clean(value === undefined || value === null ? "not stored" : String(value), 80);
    const rows = names
      .filter((name) => !differences.checked || new Set(all.map((fields) => String(fields[name]))).size > 1)
      .map((name) => [name.replaceAll("_", " "), ...all.map((fields) => text(fields[name]))]);
    const target = document.getElementById("configuration");
    if (rows.length === 0) return report.clear(target, report.note("These runs do not differ in what the store keeps of their configuration."));
    return report.clear(target, report.table("Configuration of each run", [{ title: "field" }, ...report.runs.map((run) => ({ title: clean(run.label, 40) + " (" + run.source + ")", text: true }))], rows));
  };
  differences.addEventListener("change", drawConfigurations);
  document.getElementById("configurations").addEventListener("toggle", drawConfigurations, { once: true });
  draw();
  return (run) => {
    chosen = run.index;
    draw();
  };
};

/** "yes: 79.05 of 79.07 GiB of the device". */
report.fitsText = (memory) => {
  const { format } = report;
  const { deciding, capacity, word } = report.needs(memory);
  if (typeof memory.fits !== "boolean") return "not stored";
  const doubt = memory.fits_certain === false ? ", within error" : "";
  return (memory.fits ? "yes" : "no") + doubt + ": " + format.bytes(deciding) + " of " + format.bytes(capacity) + " " + word;
};

report.facts = (run) => {
  const { format, clean, element } = report;
  const { result } = run;
  const { time, memory } = result;
  const needs = report.needs(memory);
  const { all_gather_bytes: gathered, reduce_scatter_bytes: scattered, all_reduce_bytes: reduced } = result.traffic;
  const sent = [gathered, scattered, reduced].every((bytes) => typeof bytes === "number") ? gathered + scattered + reduced : null;
  const facts = [
    ["Source", report.badge(run.source)],
    ["Run", clean(result.name || "unnamed", 80)],
    ["Identity", clean(result.run_id, 40)],
    ["Engine", clean(result.engine || "not stored", 60)],
    ["Tool", clean(result.tool + " " + result.version, 60)],
    ["Plan", clean(result.plan_hash, 40)],
    ["Median step", format.time(time.median_step_ns)],
    ["Step of the timeline", format.time(time.step_ns)],
    ["Compute", format.time(time.compute_ns)],
    ["Exposed communication", format.time(time.exposed_communication_ns)],
    ["Idle", format.time(time.idle_ns)],
    ["Communication", format.time(time.communication_ns) + ", " + format.percent(time.overlap_fraction) + " hidden"],
    ["Tokens/s per GPU", format.count(time.tokens_per_second_per_gpu)],
    ["TFLOP/s per GPU", format.number(time.tflops_per_gpu) + ", MFU " + format.percent(time.mfu)],
    ["Fits", report.fitsText(memory)],
    ...(needs.reserved === null ? [] : [["Device memory", format.bytes(needs.device)], ["Reserved by the allocator", format.bytes(needs.reserved)], ["Context and NCCL", format.bytes(needs.outside)]]),
    ["Memory peak", format.bytes(memory.peak_bytes)],
    ["Sent per GPU and step", format.bytes(sent)],
    ["Network", clean(result.cluster.network || "not stored", 200)],
  ];
  if (run.source === "measured") facts.push(["Status", clean(result.status || "not stored", 40)], ["Steps", run.steps ? format.count(run.steps.of) + (result.skipped_steps ? ", " + result.skipped_steps + " skipped" : "") : "none stored"]);
  else facts.push(["Prices", clean(result.calibration || "not stored", 40) + ", cost model " + clean(result.cost_model_version || "not stored", 40)]);
  return element("dl", { class: "facts" }, ...facts.map(([name, value]) => element("div", {}, element("dt", { text: name }), element("dd", {}, value))));
};

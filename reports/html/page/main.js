"use strict";
// Puts the parts together.

(() => {
  const { data, element, clean, format, runs } = report;
  document.title = clean(data.title, 80);
  document.getElementById("title").textContent = clean(data.title, 120);
  const simulated = runs.filter((run) => run.source === "simulated").length;
  document.getElementById("written").textContent = simulated + " simulated and " + (runs.length - simulated) + " measured " + (runs.length === 1 ? "run" : "runs") + "; written " + format.date(data.unix_ms) + (data.version ? " by mfsdp " + clean(data.version, 60) : "");

  const choice = document.getElementById("choice");
  for (const run of runs) choice.append(element("option", { value: String(run.index), text: clean(run.label, 60) + " \u00b7 " + run.source + " \u00b7 " + clean(run.result.engine || "engine not stored", 30) + " \u00b7 " + clean(run.result.model.name, 40) + " on " + run.result.cluster.gpus + " x " + clean(run.result.cluster.gpu, 30) }));

  const parts = { memory: report.memoryPart, timeline: report.timelinePart, pools: report.poolsPart };
  const drawn = {};
  let mark = () => {};
  const choose = (index) => {
    const run = runs[index];
    choice.value = String(index);
    mark(run);
    report.clear(document.getElementById("facts"), report.facts(run));
    for (const badge of document.querySelectorAll("[data-source]")) {
      badge.textContent = run.source;
      badge.className = "badge " + run.source;
    }
    for (const [name, part] of Object.entries(parts)) {
      if (drawn[name]) drawn[name].stop();
      drawn[name] = part(document.getElementById(name + "-body"), run);
    }
  };
  report.parts = drawn;
  if (runs.length === 0) {
    report.clear(document.getElementById("main"), report.note("There are no runs on this page."));
    return;
  }
  mark = report.overview((index) => {
    choose(index);
    document.getElementById("run").scrollIntoView();
  });
  choice.addEventListener("change", () => choose(Number(choice.value)));
  drawn.curves = report.curves(document.getElementById("curves-body"));
  report.fidelity(document.getElementById("fidelity-body"));
  choose(0);

  report.redraws.push(() => { for (const part of Object.values(drawn)) if (part) part.redraw(); });
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    for (const part of Object.values(drawn)) if (part) part.resize();
  }).observe(document.body);
})();

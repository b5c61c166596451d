// The page as people use it: what it shows is what the store has, by mouse, keyboard and finger.
import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import { axe, boxOf, bytesText, DESKTOP, expectedOf, facts, grouped, nextFrame, opened, PHONE, shot, start, stop } from "./support.mjs";

before(start);
after(stop);
const expected = expectedOf("runs");

test("every run is listed with its source", async () => {
  await opened("runs", DESKTOP, async (page) => {
    assert.equal(await page.textContent("#title"), expected.title);
    const rows = await page.$$eval("#runs tbody tr", (list) => list.map((row) => Array.from(row.cells, (cell) => cell.textContent)));
    assert.equal(rows.length, expected.runs.length);
    rows.forEach((row, i) => {
      assert.equal(row[0], expected.runs[i].name);
      assert.equal(row[1], expected.runs[i].source);
      assert.equal(row[6], bytesText(expected.runs[i].peak));
    });
  });
});

test("runs are sorted and filtered, and a click shows one", async () => {
  await opened("runs", DESKTOP, async (page) => {
    const names = () => page.$$eval("#runs tbody th", (list) => list.map((cell) => cell.textContent));
    await page.click("#runs thead button:has-text('Step')");
    const down = [...expected.runs].sort((a, b) => b.step - a.step).map((run) => run.name);
    assert.deepEqual((await names())[0], down[0]);
    assert.equal(await page.getAttribute("#runs th[aria-sort='descending']", "scope"), "col");
    await page.fill("#filter", "measured second");
    assert.deepEqual(await names(), ["second try"]);
    assert.equal(await page.textContent("#shown"), "1 of 5 runs");
    await page.click("#runs tbody th button");
    assert.equal(await page.inputValue("#choice"), "4");
    for (const badge of await page.$$eval("[data-source]", (list) => list.map((one) => one.textContent))) assert.equal(badge, "measured");
    assert.match(await page.textContent("#memory-body"), /measured run stores no memory over time/);
  });
});

test("configurations show their differences only, or all", async () => {
  await opened("runs", DESKTOP, async (page) => {
    await page.click("#configurations summary");
    const fields = () => page.$$eval("#configuration tbody th", (list) => list.map((cell) => cell.textContent));
    const different = await fields();
    assert.ok(different.includes("microbatches") && different.includes("strategy") && different.includes("source"));
    assert.ok(!different.includes("model"));
    await page.uncheck("#differences");
    assert.ok((await fields()).includes("model"));
  });
});

test("memory: what the cursor and the keys show is stored", async () => {
  await opened("runs", DESKTOP, async (page) => {
    const stored = new Map();
    for (const [at, total] of expected.runs[0].memory) stored.set(at + " " + total, true);
    const shown = async () => page.$eval("#memory-details", (panel) => ({ at: Number(panel.dataset.at), total: Number(panel.dataset.total), text: panel.textContent }));
    const check = async () => {
      const one = await shown();
      assert.ok(stored.has(one.at + " " + one.total), JSON.stringify(one));
      assert.ok(one.text.includes(bytesText(one.total) + " live"));
      return one;
    };
    const peak = Math.max(...expected.runs[0].memory.map(([, total]) => total));
    assert.equal((await check()).total, peak);
    assert.match((await shown()).text, /the peak/);
    assert.match(await page.textContent("#memory-body p"), new RegExp(expected.runs[0].peak_op));
    const box = await boxOf(page, "#memory-chart .u-over");
    const seen = new Set();
    for (const part of [0.05, 0.2, 0.35, 0.5, 0.8, 0.95]) {
      await page.mouse.move(box.x + part * box.width, box.y + box.height / 2);
      await nextFrame(page);
      seen.add((await check()).at);
    }
    assert.ok(seen.size >= 6);
    await page.focus("#memory-chart");
    await page.keyboard.press("Home");
    const first = await check();
    assert.equal(first.at, expected.runs[0].memory[0][0]);
    await page.keyboard.press("ArrowRight");
    assert.equal((await check()).at, expected.runs[0].memory[1][0]);
    await page.keyboard.press("p");
    assert.equal((await check()).total, peak);
    // Live buffers add up: the table has the largest ones and the sum of the others.
    const rows = await page.$$eval("#memory-live tbody tr", (list) => list.length);
    assert.equal(rows, 16);
    await page.click("#memory .legend button >> nth=0");
    assert.equal(await page.getAttribute("#memory .legend button >> nth=0", "aria-pressed"), "false");
    await page.click("text=Near the peak");
    await page.click("#memory >> text=Whole step");
  });
});

/** Moves the mouse over an op of the timeline and returns what is shown of it. */
const hover = async (page, op) => {
  const place = await page.evaluate((wanted) => {
    const run = report.runs[Number(document.getElementById("choice").value)];
    const { view, lanes } = report.parts.timeline;
    const lane = lanes.findIndex((one) => one.name === wanted.stream);
    const i = Array.from(lanes[lane].row).findIndex((row, at) => run.ops.op[row] === wanted.op && lanes[lane].instance[at] === wanted.instance);
    const half = Math.max(wanted.duration, 50);
    view.show(wanted.start - 4 * half, wanted.start + wanted.duration + 4 * half);
    return { x: view.x(lanes[lane].start[i] + wanted.duration / 2), y: 20 + lane * 34 + 16 };
  }, op);
  const box = await boxOf(page, "#timeline-canvas");
  await page.mouse.move(0, 0);
  await page.mouse.move(box.x + place.x + 1, box.y + place.y);
  await nextFrame(page);
  return { name: await page.textContent("#timeline-details h3"), ...(await facts(page, "#timeline-details")) };
};

for (const number of [0, 1, 3]) {
  test("timeline: hovering an op of run " + number + " shows what is stored of it", async () => {
    await opened("runs", DESKTOP, async (page) => {
      const run = expected.runs[number];
      await page.selectOption("#choice", String(number));
      assert.match(await page.getAttribute("#timeline-canvas", "aria-label"), new RegExp("with " + grouped(run.op_count) + " ops"));
      const ops = run.ops.filter((op) => op.duration > 0);
      for (let i = 0; i < ops.length; i += 5) {
        const op = ops[i];
        const shown = await hover(page, op);
        assert.equal(shown.name, op.name);
        assert.equal(shown.kind, op.kind);
        assert.equal(shown.stream, op.stream);
        assert.equal(shown.op, String(op.op));
        assert.ok(shown.start.endsWith("(" + (op.start < 0 ? "-" : "") + grouped(Math.abs(op.start)) + " ns)"), shown.start);
        assert.ok(shown.duration.endsWith("(" + grouped(op.duration) + " ns)"), shown.duration);
        assert.ok(shown.bytes.endsWith("(" + grouped(op.bytes) + ")"), shown.bytes);
        assert.equal(shown.FLOPs === "none", op.flops === 0);
        assert.ok(shown.segment.includes(" " + (op.instance + 1)), shown.segment);
        const waits = await page.$$eval("#timeline-details li", (list) => list.length);
        assert.equal(waits, op.waits.length);
      }
    });
  });
}

test("timeline: whom an op waited for is a step away", async () => {
  await opened("runs", DESKTOP, async (page) => {
    await page.fill("#timeline-search", "layers.3.input_norm");
    assert.equal(await page.textContent("#timeline-found"), expected.runs[0].input_norms + " ops");
    await page.keyboard.press("Enter");
    assert.equal(await page.textContent("#timeline-details h3"), "layers.3.input_norm");
    assert.match(await page.textContent("#timeline-details ul"), /for layers\.3\.all_gather on all_gather; (its stream stood still for it|it had ended) [\d.]+ (ns|us|ms)/);
    await page.click("#timeline-details li button");
    assert.equal(await page.textContent("#timeline-details h3"), "layers.3.all_gather");
    await page.fill("#timeline-search", "no such op");
    assert.equal(await page.textContent("#timeline-found"), "0 ops");
  });
});

const countOf = (page, run, name) => page.evaluate(([index, wanted]) => {
  const { ops } = report.runs[index];
  const { lanes } = report.parts.timeline;
  let [count, omitted] = [0, 0];
  for (const lane of lanes) lane.row.forEach((row, i) => {
    if (report.text(ops.text[row]) !== wanted) return;
    ++count;
    omitted += lane.omitted[i];
  });
  return { count, omitted };
}, [run, name]);

test("timeline: all eight microbatches are there", async () => {
  await opened("runs", DESKTOP, async (page) => {
    await page.selectOption("#choice", "1");
    assert.deepEqual(await countOf(page, 1, "layers.0.qkv"), { count: 8, omitted: 0 });
    const op = expected.runs[1].ops.find((one) => one.instance === 4 && one.duration > 0);
    assert.match((await hover(page, op)).segment, /middle 5 of 6$/);
    // Memory too: every microbatch comes to the peak.
    const peaks = await page.evaluate(() => {
      const { memory } = report.runs[1];
      return memory.total.filter((bytes) => bytes > 0.99 * memory.total[memory.peak]).length;
    });
    assert.ok(peaks >= 8);
    const points = await page.evaluate(() => Array.from(report.runs[1].memory.at, (at, i) => [at, report.runs[1].memory.total[i]]));
    assert.deepEqual(points, expected.runs[1].memory);
  });
});

test("timeline: microbatches whose times were not kept say so", async () => {
  await opened("large", DESKTOP, async (page) => {
    assert.deepEqual(await countOf(page, 0, "layers.0.qkv"), { count: 56, omitted: 52 });
    assert.match(await page.textContent("#timeline-body"), /Of 54 runs of .middle. the times of 52 were not kept/);
    const { ops } = expectedOf("large").runs[0];
    assert.match((await hover(page, ops.find((op) => op.instance === 30 && op.duration > 0))).segment, /middle 31 of 54, about so/);
  });
});

test("timeline: keys and wheel", async () => {
  await opened("runs", DESKTOP, async (page) => {
    const width = () => page.evaluate(() => report.parts.timeline.view.to - report.parts.timeline.view.from);
    const name = () => page.textContent("#timeline-details h3");
    await page.focus("#timeline-canvas");
    const all = await width();
    await page.keyboard.press("+");
    assert.ok((await width()) < all * 0.6);
    const from = await page.evaluate(() => report.parts.timeline.view.from);
    await page.keyboard.press("Shift+ArrowRight");
    assert.ok((await page.evaluate(() => report.parts.timeline.view.from)) > from);
    await page.keyboard.press("Home");
    assert.ok(Math.abs((await width()) - all) < all * 0.03);
    await page.keyboard.press("ArrowRight");
    const first = await name();
    await page.keyboard.press("ArrowRight");
    assert.notEqual(await name(), first);
    await page.keyboard.press("ArrowDown");
    assert.equal((await facts(page, "#timeline-details")).stream, "all_gather");
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.id), "timeline-search");
    // The wheel scrolls the page until the canvas has been taken.
    const box = await boxOf(page, "#timeline-canvas");
    await page.mouse.move(box.x + 600, box.y + 40);
    const before = await width();
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -300);
    await page.keyboard.up("Control");
    await nextFrame(page);
    assert.ok((await width()) < before);
    const left = await page.evaluate(() => report.parts.timeline.view.from);
    await page.mouse.down();
    await page.mouse.move(box.x + 400, box.y + 40, { steps: 4 });
    await page.mouse.up();
    assert.ok((await page.evaluate(() => report.parts.timeline.view.from)) > left);
  });
});

test("pools: buffers lie where the plan has them, none over another", async () => {
  await opened("runs", DESKTOP, async (page) => {
    const overlaps = await page.evaluate(() => {
      const run = report.runs[0];
      const { held } = run.plan;
      const list = report.parts.pools.shown();
      let count = 0;
      for (const pool of run.plan.pools.keys()) {
        const one = list.filter((item) => held.pool[item.b] === pool);
        for (let i = 0; i < one.length; ++i)
          for (let k = i + 1; k < one.length && one[k].begin < one[i].end; ++k) {
            const [a, b] = [one[i], one[k]];
            if (a.offset < b.offset + held.size[b.b] && b.offset < a.offset + held.size[a.b]) ++count;
          }
      }
      return count;
    });
    assert.equal(overlaps, 0);
    const target = await page.evaluate(() => {
      const run = report.runs[0];
      const { held } = run.plan;
      const one = report.parts.pools.shown().filter((item) => !item.always).sort((a, b) => (b.end - b.begin) * held.size[b.b] - (a.end - a.begin) * held.size[a.b])[0];
      const [x0, y0, x1, y1] = report.parts.pools.box(one);
      return { x: (x0 + x1) / 2, y: (y0 + y1) / 2, name: report.text(held.text[one.b]), size: held.size[one.b], offset: one.offset };
    });
    const box = await boxOf(page, "#pools-canvas");
    await page.mouse.move(box.x + target.x, box.y + target.y);
    await nextFrame(page);
    assert.equal(await page.textContent("#pools-details h3"), target.name);
    const shown = await facts(page, "#pools-details");
    assert.ok(shown.size.endsWith("(" + grouped(target.size) + ")"));
    assert.equal(shown.offset, grouped(target.offset));
    await page.selectOption("#pool-choice", { index: 2 });
    await page.focus("#pools-canvas");
    await page.keyboard.press("ArrowRight");
    assert.ok((await page.textContent("#pools-details h3")).length > 0);
  });
});

test("curves: last values, tokens and hiding", async () => {
  await opened("runs", DESKTOP, async (page) => {
    const loss = "#curves [data-metric='Loss']";
    assert.match(await page.getAttribute(loss, "aria-label"), /Loss over steps, measured\. Last values: baseline on the cluster \d\.\d+; baseline on the cluster, evaluation/);
    const box = await boxOf(page, loss + " .u-over");
    await page.mouse.move(box.x + box.width / 2, box.y + 30);
    await nextFrame(page);
    assert.match(await page.textContent(loss + " + p"), /^Step 1\d\d: baseline on the cluster [\d.]+; /);
    await page.selectOption("#abscissa", "token");
    assert.match(await page.getAttribute(loss, "aria-label"), /over tokens/);
    await page.click("#curves .legend button >> nth=1");
    assert.ok(!(await page.getAttribute(loss, "aria-label")).includes("second try"));
  });
});

test("prediction: errors have their sign", async () => {
  await opened("runs", DESKTOP, async (page) => {
    const [predicted, measured] = [expected.runs[0], expected.runs[3]];
    const rows = await page.$$eval("#errors table >> nth=0 >> tbody tr", (list) => list.map((row) => Array.from(row.cells, (cell) => cell.textContent)));
    const error = (100 * (predicted.step - measured.step)) / measured.step;
    assert.equal(rows[0][4], (error < 0 ? "\u2212" : "+") + Math.abs(error).toFixed(2) + " %");
    assert.deepEqual(await page.$$eval("#errors thead th", (list) => list.slice(1, 3).map((cell) => cell.textContent)), ["simulated", "measured"]);
    await page.selectOption("#predicted", "2");
    assert.match(await page.textContent("#errors"), /different plans/);
  });
});

test("a step of 50,000 ops is drawn by pixels, not by ops", async () => {
  await opened("large", DESKTOP, async (page) => {
    const [run] = expectedOf("large").runs;
    assert.ok(run.op_count >= 50000);
    const drawn = await page.evaluate(() => {
      const { view, lanes } = report.parts.timeline;
      const original = CanvasRenderingContext2D.prototype.fillRect;
      let calls = 0;
      CanvasRenderingContext2D.prototype.fillRect = function (...where) { ++calls; return original.apply(this, where); };
      view.fit();
      view.draw();
      CanvasRenderingContext2D.prototype.fillRect = original;
      const times = [];
      for (let i = 0; i < 21; ++i) {
        view.zoom(i % 2 ? 2 : 0.5);
        const begin = performance.now();
        view.draw();
        times.push(performance.now() - begin);
      }
      return { calls, ops: lanes.reduce((sum, lane) => sum + lane.start.length, 0), median: times.sort((a, b) => a - b)[10] };
    });
    assert.equal(drawn.ops, run.op_count);
    assert.ok(drawn.calls < 8 * 1400, String(drawn.calls));
    console.log("# " + drawn.ops + " ops: " + drawn.calls + " rectangles, median redraw " + drawn.median.toFixed(1) + " ms");
  });
});

test("what nobody knows of a run is not stored, and never zero", async () => {
  await opened("imported", DESKTOP, async (page) => {
    const row = await page.$eval("#runs tbody tr", (one) => Array.from(one.cells, (cell) => cell.textContent));
    assert.deepEqual(row.slice(5, 14), Array(9).fill("not stored"));
    const shown = await page.$$eval("#facts dl > div", (list) => Object.fromEntries(list.map((one) => [one.children[0].textContent, one.children[1].textContent])));
    for (const name of ["Median step", "Step of the timeline", "Compute", "Idle", "Memory peak", "Tokens/s per GPU", "Sent per GPU and step"]) assert.equal(shown[name], "not stored", name);
    for (const [part, text] of [["memory", /not stored/], ["timeline", /not stored/], ["pools", /not stored/]]) assert.match(await page.textContent("#" + part + "-body"), text);
    assert.match(await page.getAttribute("#curves [data-metric='Loss']", "aria-label"), /torchtitan's run 0.225/);
    assert.equal(await page.textContent("#curves [data-metric='Step time, ms'] + p"), "Nothing stored.");
    await page.selectOption("#abscissa", "token");
    await page.click("#configurations summary");
    const errors = await page.$$eval("#errors tbody tr", (list) => list.map((one) => one.cells[4].textContent));
    assert.ok(errors.every((error) => error === "n/a"));
    assert.deepEqual(await axe(page), []);
  });
});

test("of an engine with a caching allocator, what decides is shown beside what lives", async () => {
  await opened("engines", DESKTOP, async (page) => {
    const [ours, theirs] = expectedOf("engines").runs;
    const gib = 2 ** 30;
    const reserved = theirs.peak + 5 * gib;
    const device = reserved + 2 * gib;
    const heads = await page.$$eval("#runs thead th", (list) => list.map((cell) => cell.textContent));
    const rows = await page.$$eval("#runs tbody tr", (list) => list.map((row) => Array.from(row.cells, (cell) => cell.textContent)));
    const cell = (row, title) => rows[row][heads.indexOf(title)];
    assert.deepEqual([cell(0, "Engine"), cell(1, "Engine")], ["mfsdp", "fsdp2"]);
    assert.deepEqual([cell(0, "Reserved"), cell(1, "Reserved")], ["none", bytesText(reserved)]);
    assert.equal(cell(0, "Fits"), "yes: " + bytesText(ours.peak) + " of " + bytesText(ours.capacity) + " allocated");
    assert.equal(cell(1, "Fits"), "yes: " + bytesText(device) + " of " + bytesText(theirs.capacity) + " of the device");
    assert.match(await page.textContent("#choice option >> nth=1"), /fsdp2/);

    // A line of the chart, as long as that is wide, for the GPU's memory.
    const colour = () => page.evaluate(() => {
      const canvas = document.querySelector("#memory-chart canvas");
      const warn = report.colours.page("warn");
      const wanted = [1, 3, 5].map((i) => parseInt(warn.slice(i, i + 2), 16));
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const rows = new Map();
      for (let i = 0; i < data.length; i += 4)
        if (wanted.every((value, c) => Math.abs(data[i + c] - value) < 3)) rows.set(Math.floor(i / 4 / canvas.width), (rows.get(Math.floor(i / 4 / canvas.width)) || 0) + 1);
      return Math.max(0, ...rows.values()) / canvas.width;
    });
    await page.selectOption("#choice", "1");
    const label = await page.getAttribute("#memory-chart", "aria-label");
    assert.ok(label.includes("reserved at most " + bytesText(reserved)) && label.includes("the GPU's memory, " + bytesText(theirs.capacity)), label);
    assert.ok((await colour()) > 0.8);

    // No total exceeds the peak of allocated memory: the context is listed beside it.
    const { largest, runtime } = await page.evaluate(() => {
      const { memory } = report.runs[1];
      return { largest: memory.total[memory.peak], runtime: Math.max(...memory.values[report.data.categories.indexOf("runtime")]) };
    });
    assert.ok(largest <= theirs.peak, largest + " of " + theirs.peak);
    assert.equal(runtime, 0);
    assert.match(await page.textContent("#memory-needs"), new RegExp("Device memory: " + bytesText(device) + ", of it " + bytesText(reserved)));
    const shown = await page.$$eval("#facts dl > div", (list) => Object.fromEntries(list.map((one) => [one.children[0].textContent, one.children[1].textContent])));
    assert.deepEqual([shown["Device memory"], shown["Reserved by the allocator"], shown["Context and NCCL"]], [bytesText(device), bytesText(reserved), "2.00 GiB"]);
    assert.deepEqual(await axe(page), []);
    await shot(page, "engines", true);
  });
});

test("a page without runs says so", async () => {
  await opened("empty", DESKTOP, async (page) => {
    assert.match(await page.textContent("#main"), /There are no runs on this page/);
  });
});

test("the policy lets no script in that the page did not come with", async () => {
  await opened("empty", DESKTOP, async (page) => {
    const policy = await page.getAttribute("meta[http-equiv='Content-Security-Policy']", "content");
    assert.match(policy, /^default-src 'none'; base-uri 'none'; form-action 'none'; script-src 'sha256-/);
    assert.ok(!/unsafe|http|data:|\*/.test(policy));
  });
});

test("nothing serious for axe, in both themes, on desktop and phone", async () => {
  for (const [device, options] of [["desktop", DESKTOP], ["phone", PHONE]])
    for (const colorScheme of ["light", "dark"])
      for (const run of ["0", "3"])
        await opened("runs", { ...options, colorScheme }, async (page) => {
          await page.selectOption("#choice", run);
          await page.click("#configurations summary");
          assert.equal(await page.getAttribute("html", "data-theme"), colorScheme);
          assert.deepEqual(await axe(page), [], device + " " + colorScheme + " " + run);
          await shot(page, [device, colorScheme, run].join("-"), true);
        });
});

test("the theme's button, and printing is always light", async () => {
  await opened("runs", { ...DESKTOP, colorScheme: "dark" }, async (page) => {
    const theme = () => page.getAttribute("html", "data-theme");
    assert.equal(await theme(), "dark");
    await page.click("#theme");
    assert.equal(await theme(), "light");
    await page.click("#theme");
    assert.equal(await theme(), "dark");
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    assert.equal(await theme(), "light");
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.isVisible("nav"), false);
    assert.equal(await page.isVisible(".tools >> nth=0"), false);
    assert.equal(await page.isVisible("#timeline-canvas"), true);
    await shot(page, "print", true);
    await page.evaluate(() => dispatchEvent(new Event("afterprint")));
    assert.equal(await theme(), "dark");
    const pdf = await page.pdf({ format: "A4" });
    assert.equal(pdf.subarray(0, 5).toString(), "%PDF-");
  });
});

test("on a phone nothing is wider than the screen, and a finger picks an op", async () => {
  await opened("runs", PHONE, async (page) => {
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
    const op = expected.runs[0].ops.find((one) => one.stream === "compute" && one.duration > 100000);
    await page.evaluate(({ start, duration }) => report.parts.timeline.view.show(start - duration, start + 2 * duration), op);
    const box = await boxOf(page, "#timeline-canvas");
    const x = await page.evaluate(({ start, duration }) => report.parts.timeline.view.x(start + duration / 2), op);
    await page.touchscreen.tap(box.x + x, box.y + 36);
    await nextFrame(page);
    assert.equal(await page.textContent("#timeline-details h3"), op.name);
  });
});

test("everything is reached with Tab, and what has the focus is seen", async () => {
  await opened("runs", DESKTOP, async (page) => {
    const reached = new Set();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    for (let i = 0; i < 120; ++i) {
      const id = await page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute("href") || document.activeElement.dataset.metric || "");
      reached.add(id);
      const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
      assert.notEqual(outline, "none", id);
      if (id === "measured") break;
      await page.keyboard.press("Tab");
    }
    for (const id of ["theme", "#timeline", "filter", "choice", "memory-chart", "timeline-search", "timeline-canvas", "pool-choice", "pools-canvas", "abscissa", "Loss", "predicted", "measured"]) assert.ok(reached.has(id), id);
  });
});

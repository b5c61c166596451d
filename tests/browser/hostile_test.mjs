// Values of a store are shown as text: markup, script, control characters, a megabyte.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test, { after, before } from "node:test";
import { DESKTOP, expectedOf, nextFrame, opened, pages, PHONE, shot, start, stop } from "./support.mjs";

before(start);
after(stop);
const expected = expectedOf("hostile");

/** As the page shows a text: without what is not seen, and short. Written apart from page/base.js. */
const visible = (text, most) => {
  let shown = "";
  for (const character of text.slice(0, 2000)) {
    const code = character.codePointAt(0);
    const hidden = code < 32 || (code >= 127 && code < 160) || code === 0xad || code === 0x61c || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code === 0xfeff;
    if (character === "\n" || character === "\t") shown += " ";
    else shown += hidden ? "\u27e8U+" + code.toString(16).toUpperCase().padStart(4, "0") + "\u27e9" : character;
  }
  const characters = Array.from(shown);
  return characters.length > most ? characters.slice(0, most).join("") + "\u2026" : shown;
};

/** Checks that no text became markup or ran as a script. */
const unharmed = async (page) => {
  const found = await page.evaluate(() => ({
    hacked: window.hacked,
    images: document.querySelectorAll("img, svg, iframe, object, embed, link, base, form").length,
    scripts: document.querySelectorAll("script").length,
    bold: document.querySelectorAll("b").length,
    handlers: Array.from(document.querySelectorAll("*")).filter((one) => Array.from(one.attributes).some((attribute) => attribute.name.startsWith("on"))).length,
  }));
  const scripts = readFileSync(join(pages, "empty.html"), "utf8").match(/<script/g).length;
  assert.deepEqual(found, { hacked: undefined, images: 0, scripts, bold: 0, handlers: 0 });
};

test("the file itself has no markup in its data", () => {
  const page = readFileSync(join(pages, "hostile.html"), "utf8");
  const begin = page.indexOf('<script type="application/json" id="data">');
  const end = page.indexOf("</script>", begin);
  const data = page.slice(page.indexOf(">", begin) + 1, end);
  assert.ok(data.length > 1 << 20);
  assert.ok(!/[<>&\u2028\u2029]/.test(data));
  assert.equal(JSON.parse(data).runs.length, expected.runs.length);
});

for (const [device, options] of [["desktop", DESKTOP], ["phone", PHONE]])
  test("every text of every run is shown as text, " + device, async () => {
    await opened("hostile", options, async (page) => {
      assert.equal(await page.textContent("#title"), visible(expected.title, 120));
      assert.equal(await page.title(), visible(expected.title, 80).replace(/\s+/g, " ").trim());
      const names = await page.$$eval("#runs tbody th", (list) => list.map((cell) => cell.textContent));
      expected.runs.forEach((run, i) => assert.equal(names[i], visible(run.name, 80)));
      await page.click("#configurations summary");
      await page.uncheck("#differences");
      await unharmed(page);
      for (const [i, run] of expected.runs.entries()) {
        await page.selectOption("#choice", String(i));
        const body = await page.evaluate(() => document.getElementById("facts").textContent);
        assert.ok(body.includes(visible(run.name, 80)), run.name.slice(0, 60));
        assert.ok(body.includes(visible(run.run_id, 40)));
        if (run.peak_op) assert.ok((await page.textContent("#memory-body")).includes(visible(run.peak_op, 80)));
        await page.focus("#timeline-canvas");
        await page.keyboard.press("ArrowRight");
        await nextFrame(page);
        const shown = await page.textContent("#timeline-details h3");
        if (run.ops.length && i < expected.runs.length - 2) assert.equal(shown, visible(run.ops[0].name, 80));
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
      }
      await unharmed(page);
      await shot(page, "hostile-" + device, device === "desktop");
    });
  });

test("names of buffers and pools are text, also in the map and at the peak", async () => {
  await opened("hostile", DESKTOP, async (page) => {
    await page.selectOption("#choice", String(expected.runs.length - 2));
    assert.match(await page.textContent("#memory-live"), /<script>window\.hacked=1<\/script>/);
    await page.focus("#pools-canvas");
    for (let i = 0; i < 20; ++i) await page.keyboard.press("ArrowRight");
    assert.ok((await page.textContent("#pools-details h3")).length > 0);
    assert.match(await page.textContent("#pool-choice"), /<img src=x onerror=window\.hacked=1>/);
    await unharmed(page);
  });
});

test("texts of runs are searched as text", async () => {
  await opened("hostile", DESKTOP, async (page) => {
    await page.fill("#filter", "<script>window");
    assert.ok((await page.$$("#runs tbody tr")).length >= 2);
    await page.fill("#filter", ".*");
    assert.equal((await page.$$("#runs tbody tr")).length, 0);
    await page.fill("#timeline-search", "</script>");
    await unharmed(page);
  });
});

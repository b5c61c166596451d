// Shared by the browser tests: Chromium, pages, and the checks of every page that was opened.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const SKIPPED = 77;  // SKIP_RETURN_CODE in CTest
const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);

const skip = (why) => {
  console.log("skipped: " + why);
  process.exit(SKIPPED);
};

const chromiumPath = process.env.MFSDP_CHROMIUM || "/usr/bin/chromium";
if (!existsSync(chromiumPath)) skip("no " + chromiumPath + "; scripts/install-dependencies --ci installs it");
if (!existsSync(join(here, "node_modules", "playwright-core"))) skip("no node_modules in tests/browser; scripts/install-dependencies --ci installs them");

export const pages = process.argv[2];
if (!pages) {
  console.error("usage: node FILE FOLDER, where FOLDER is what mfsdp_browser_pages wrote");
  process.exit(2);
}
const shots = join(pages, "screenshots");
mkdirSync(shots, { recursive: true });

const { chromium } = require("playwright-core");
const axeSource = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

let browser = null;
export const start = async () => {
  browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox", "--disable-gpu"] });
};
export const stop = async () => { await browser.close(); };

export const expectedOf = (name) => JSON.parse(readFileSync(join(pages, name + ".json"), "utf8"));

export const DESKTOP = { viewport: { width: 1280, height: 900 } };
export const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

/** Opens a page of the folder and hands it to `use`; whatever it does, nothing may be fetched, logged as an error or thrown. */
export const opened = async (name, options, use) => {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const said = [];
  const url = pathToFileURL(join(pages, name + ".html")).href;
  page.on("console", (message) => said.push(message.type() + ": " + message.text()));
  page.on("pageerror", (error) => said.push("thrown: " + error.message));
  page.on("dialog", (dialog) => { said.push("dialog: " + dialog.message()); dialog.dismiss(); });
  page.on("request", (request) => { if (request.url() !== url) said.push("request: " + request.url().slice(0, 200)); });
  page.on("popup", () => said.push("popup"));
  page.setDefaultTimeout(20000);
  await page.goto(url);
  try {
    await use(page);
  } finally {
    await context.close();
  }
  assert.deepEqual(said, []);
};

export const shot = (page, name, whole = false) => page.screenshot({ path: join(shots, name + ".png"), fullPage: whole });

/** The findings of axe, a line each. The page's policy allows no scripts, so axe is injected from outside. */
export const axe = async (page) => {
  await page.evaluate(axeSource);
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return result.violations.map((violation) => violation.impact + " " + violation.id + ": " + violation.nodes.map((node) => node.target.join(" ")).slice(0, 3).join(", "));
};

/** The facts that a panel shows, by title. */
export const facts = (page, panel) => page.$$eval(panel + " [data-fact]", (list) => Object.fromEntries(list.map((one) => [one.dataset.fact, one.querySelector("dd").textContent])));

/** Where an element is, after scrolling there. */
export const boxOf = async (page, selector) => {
  await page.locator(selector).scrollIntoViewIfNeeded();
  await nextFrame(page);
  return page.locator(selector).boundingBox();
};

export const nextFrame = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** As the tools print it. */
export const bytesText = (bytes) => {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) if (bytes >= size) return (bytes / size).toFixed(2) + " " + unit;
  return bytes + " B";
};
export const grouped = (number) => String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

"use strict";
// Parts that all of the page shares: elements, texts, numbers, packed columns, colours.
// Texts of runs reach the page as text nodes alone: nothing here takes markup.

const report = { data: JSON.parse(document.getElementById("data").textContent), redraws: [] };

/** An element. `properties`: attributes; `class`, `text` and on… handlers as usual. */
report.element = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

report.clear = (element, ...children) => {
  element.replaceChildren(...children);
  return element;
};

/** A stored text as it is shown: short, and with marks in the place of what would not be seen or would turn
    the text around it. */
report.clean = (text, most = 160) => {
  const shown = String(text)
    .slice(0, 4 * most)
    .replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (c) =>
      c === "\n" || c === "\t" ? " " : "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");
  const characters = Array.from(shown);
  return characters.length > most || text.length > 4 * most ? characters.slice(0, most).join("") + "\u2026" : shown;
};

// ---- Numbers ---------------------------------------------------------------------------------

const group = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const stated = (value) => typeof value === "number" && Number.isFinite(value);

report.format = {
  count: (value) => (stated(value) ? group.format(value) : "not stored"),
  bytes: (value) => {
    if (!stated(value)) return "not stored";
    for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
      if (Math.abs(value) >= size) return (value / size).toFixed(2) + " " + unit;
    return value + " B";
  },
  /** Nanoseconds. */
  time: (value) => {
    if (!stated(value)) return "not stored";
    for (const [unit, size, digits] of [["s", 1e9, 3], ["ms", 1e6, 2], ["us", 1e3, 2]])
      if (Math.abs(value) >= size) return (value / size).toFixed(digits) + " " + unit;
    return Math.round(value) + " ns";
  },
  /** A count of something in a second, of nanoseconds. */
  rate: (value, nanoseconds, unit) => {
    if (!stated(value) || !(nanoseconds > 0)) return "none";
    const per = (value / nanoseconds) * 1e9;
    for (const [prefix, size] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
      if (per >= size) return (per / size).toFixed(1) + " " + prefix + unit + "/s";
    return per.toFixed(1) + " " + unit + "/s";
  },
  flops: (value) => {
    if (!stated(value)) return "not stored";
    for (const [prefix, size] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6]])
      if (value >= size) return (value / size).toFixed(2) + " " + prefix + "FLOP";
    return group.format(value) + " FLOP";
  },
  percent: (fraction, digits = 1) => (stated(fraction) ? (100 * fraction).toFixed(digits) + " %" : "not stored"),
  /** With its sign. */
  signed: (fraction) => (stated(fraction) ? report.format.sign(fraction) + Math.abs(100 * fraction).toFixed(2) + " %" : "n/a"),
  sign: (value) => (value < 0 ? "\u2212" : value > 0 ? "+" : ""),
  number: (value, digits = 4) => (stated(value) ? Number(value.toPrecision(digits)).toString() : "not stored"),
  yes: (value) => (typeof value === "boolean" ? (value ? "yes" : "no") : "not stored"),
  date: (milliseconds) => (milliseconds > 0 ? new Date(milliseconds).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "not stored"),
};

// ---- Packed columns (reports/html/packed.hpp) --------------------------------------------------

const digits = new Map(Array.from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", (c, i) => [c.charCodeAt(0), i]));

report.unpack = (text, differences = false) => {
  const numbers = [];
  let before = 0;
  for (let i = 0; i < text.length; ) {
    let digit = digits.get(text.charCodeAt(i++));
    const negative = (digit & 1) === 1;
    let value = (digit & 31) >> 1;
    for (let scale = 16; digit & 32; scale *= 32) {
      digit = digits.get(text.charCodeAt(i++));
      value += (digit & 31) * scale;
    }
    if (negative) value = -value;
    numbers.push(differences ? (before += value) : value);
  }
  return Float64Array.from(numbers);
};

/** Where `values`, ascending, first exceed `value`. */
report.upperBound = (values, value) => {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
};

// ---- Colours -----------------------------------------------------------------------------------

report.colours = {
  categories: ["#4e79a7", "#8cb4dc", "#f28e2b", "#59a14f", "#76b7b2", "#e15759", "#b07aa1", "#ff9da7", "#9c755f", "#8a8f98"],
  runs: ["#4e79a7", "#e8842a", "#3f9a4a", "#d6494c", "#9a6fb0", "#9c755f", "#d45fa2", "#7f868f", "#a8a12c", "#2ba3b5"],
  /** A colour of the page's current theme. */
  page: (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim(),
};

const kinds = [
  [/^all_gather/, "all-gather", "#f28e2b"],
  [/^reduce_scatter/, "reduce-scatter", "#e15759"],
  [/^(all_reduce|send|recv)/, "all-reduce, send, receive", "#d4a72c"],
  [/^(h2d|d2h|d2d)/, "copies", "#9c755f"],
  [/gemm/, "GEMM", "#4e79a7"],
  [/attention/, "attention", "#b07aa1"],
  [/^(adamw|sgd|muon|update)|norm_partial|norm_finish|clip|cast|optimizer/, "optimizer", "#59a14f"],
  [/./, "other kernels", "#76b7b2"],
];
report.kindGroups = kinds.map(([, name, colour]) => ({ name, colour }));
report.kindGroup = (kind) => {
  const found = kinds.findIndex(([pattern]) => pattern.test(kind));
  return found < 0 ? kinds.length - 1 : found;
};

/** "simulated" or "measured", wherever figures of a run stand. */
report.badge = (source) => report.element("span", { class: "badge " + (source === "measured" ? "measured" : "simulated"), text: source === "measured" ? "measured" : "simulated" });

// ---- Theme and printing ------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
const themes = ["as the system", "light", "dark"];
let theme = 0;
let printing = false;

report.applyTheme = () => {
  const isDark = !printing && (theme === 2 || (theme === 0 && dark.matches));
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  document.getElementById("theme").textContent = "Theme: " + themes[theme];
  for (const redraw of report.redraws) redraw();
};
document.getElementById("theme").addEventListener("click", () => {
  theme = (theme + 1) % themes.length;
  report.applyTheme();
});
dark.addEventListener("change", () => report.applyTheme());
addEventListener("beforeprint", () => { printing = true; report.applyTheme(); });
addEventListener("afterprint", () => { printing = false; report.applyTheme(); });
report.applyTheme();

/** A table. `columns`: { title, number, text }; `rows`: arrays of text or nodes. */
report.table = (caption, columns, rows, properties = {}) => {
  const cell = (column, value, index) =>
    report.element(index === 0 ? "th" : "td", { class: column.number ? "number" : column.text ? "text" : null, "data-label": column.title, scope: index === 0 ? "row" : null }, value);
  const table = report.element("table", properties,
    report.element("caption", { text: caption }),
    report.element("thead", {}, report.element("tr", {}, ...columns.map((column) => report.element("th", { class: column.number ? "number" : null, scope: "col", text: column.title })))),
    report.element("tbody", {}, ...rows.map((row) => report.element("tr", {}, ...row.map((value, i) => cell(columns[i], value, i))))));
  return report.element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
};

report.note = (text) => report.element("p", { class: "note", text });

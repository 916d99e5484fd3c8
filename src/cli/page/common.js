/* common.js: what the pages of reports and of the server draw with. */
const $ = selector => document.querySelector(selector);
const tip = $("#tip");
let style = getComputedStyle(document.documentElement);
const palette = ["#3f78c3", "#de8433", "#3f9c78", "#ab62ab", "#c7544b", "#96852f", "#4aa6be", "#8376d8"];
const shade = {weights: .95, kv: .76, activations: .58, scratch: .42, other: .3};
const classColour = {weights: "#3f78c3", kv: "#ab62ab", activations: "#de8433", scratch: "#96852f", other: "#4aa6be"};
const classes = ["weights", "kv", "activations", "scratch", "other"];

const css = name => style.getPropertyValue(name).trim();
const colour = row => row < palette.length ? palette[row] : `hsl(${row * 137.5 % 360} 48% 52%)`;
const size = bytes => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < 4) { bytes /= 1024; unit++; }
  return `${Number(bytes.toFixed(bytes < 10 ? 2 : 1))} ${units[unit]}`;
};
const number = n => n.toLocaleString("en");
const seconds = us => us < 1e3 ? `${us} µs` : us < 1e6 ? `${Number((us / 1e3).toPrecision(3))} ms` : `${Number((us / 1e6).toPrecision(4))} s`;
const make = (name, parent, text, kind) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  if (parent) parent.append(made);
  return made;
};
const mark = (fill, alpha = 1) => {
  const made = make("i", null, undefined, "mark");
  made.style.background = fill;
  made.style.opacity = alpha;
  return made;
};
const hatched = fill => {
  const made = mark(`repeating-linear-gradient(135deg, ${fill} 0 2px, transparent 2px 4px)`);
  made.style.border = `1px solid ${fill}`;
  return made;
};
const niceStep = (top, wanted) => {
  const rough = top / wanted, unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(rough, 1)) / Math.log(1024)));
  for (const step of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]) if (step * unit >= rough) return step * unit;
  return 1024 * unit;
};

/* Tips ------------------------------------------------------------------------------------------------------------ */

function showTip(event, rows) {
  tip.replaceChildren();
  for (const [sign, name, amount] of rows) {
    const row = make("div", tip);
    if (sign) row.append(sign);
    make("span", row, name);
    make("b", row, amount ?? "");
  }
  const wide = tip.offsetWidth, tall = tip.offsetHeight;
  const x = event.clientX + 14 + wide > innerWidth ? event.clientX - wide - 14 : event.clientX + 14;
  const y = event.clientY - tall / 2;
  tip.style.transform = `translate(${Math.max(4, Math.min(x, innerWidth - wide - 4))}px, ${Math.max(4, Math.min(y, innerHeight - tall - 4))}px)`;
  tip.style.visibility = "visible";
}
const hideTip = () => { tip.style.visibility = "hidden"; };

/* A canvas as sharp as the screen; answers its context and its size. */
function canvasOf(plot, height) {
  const canvas = plot.querySelector("canvas"), width = plot.clientWidth, ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  return [pen, width, canvas];
}

function fit(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "…").width <= room) low = middle; else high = middle - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}


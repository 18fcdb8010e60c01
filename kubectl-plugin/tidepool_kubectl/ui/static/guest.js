// A guest: what it is, its curve, and what a pool of another size would spare it.
import { fill } from "./become.js";
import { html, rate, size, svg, table } from "./elements.js";
import { pairingsTable } from "./map.js";

const WIDTH = 640, HEIGHT = 260, LEFT = 70, BOTTOM = 40, TOP = 15;
const STEPS = 64;

function facts(guest) {
  const each = {
    Node: guest.node, Kernel: guest.kernel || "unknown", Role: guest.role,
    Ready: guest.isReady ? "yes" : `no: ${guest.message || "not known why"}`,
    Memory: `${size(guest.totalBytes)}, ${size(guest.availableBytes)} of it available`,
    "Reads that its page cache cannot answer": rate(guest.readsPerSecond),
    "Of these spared by lenders": rate(guest.sparedPerSecond),
  };
  return html("dl", {}, ...Object.entries(each).flatMap(([name, said]) => [html("dt", {}, name), html("dd", {}, said)]));
}

function scales(curve) {
  const widest = curve.at(-1).sizeBytes, most = Math.max(1, ...curve.map((point) => point.readsPerSecond));
  return {
    x: (bytes) => LEFT + (bytes / widest) * (WIDTH - LEFT - 10),
    y: (reads) => HEIGHT - BOTTOM - (reads / most) * (HEIGHT - BOTTOM - TOP),
    widest, most,
  };
}

function plot(curve, mark) {
  const { x, y, widest, most } = scales(curve);
  const points = [{ sizeBytes: 0, readsPerSecond: 0 }, ...curve];
  const path = points.map((one, at) => `${at ? "L" : "M"}${x(one.sizeBytes).toFixed(1)} ${y(one.readsPerSecond).toFixed(1)}`).join("");
  return svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img",
    "aria-label": "Disk reads spared by size of the pool; the table below has the same figures",
  },
  svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - 10}` }),
  svg("path", { class: "curve", d: path }),
  mark ? svg("circle", { class: "mark", cx: x(Math.min(mark.sizeBytes, widest)), cy: y(mark.readsPerSecond), r: 6 }) : null,
  svg("text", { x: LEFT - 8, y: TOP + 8, "text-anchor": "end" }, rate(most)),
  svg("text", { x: LEFT - 8, y: HEIGHT - BOTTOM, "text-anchor": "end" }, "0"),
  svg("text", { x: WIDTH - 10, y: HEIGHT - BOTTOM + 20, "text-anchor": "end" }, size(widest)));
}

const plotted = (curve, mark) =>
  html("div", { class: "scroll", "data-key": "plot", tabindex: "0", role: "region", "aria-label": "Plot" }, plot(curve, mark));

const curveTable = (curve) => table("Curve", [
  { title: "Size", figure: true, of: (one) => size(one.sizeBytes) },
  { title: "Disk reads spared", figure: true, of: (one) => rate(one.readsPerSecond) },
], curve);

function startOf(guest, widest) {
  const borrowed = guest.borrows.reduce((sum, one) => sum + one.sizeBytes, 0);
  return Math.min(borrowed || widest / 2, widest);
}

// `ask` gives what a size in bytes is worth, or null. What comes of `show` is drawn into the same elements each time.
export function forecast(ask) {
  const slider = html("input", { type: "range", id: "size", min: 0, max: STEPS, step: 1 });
  const chosen = html("div", {}, html("label", { for: "size" }, "Size of the pool for this guest"), slider);
  const said = html("output", { for: "size", id: "whatif" }), drawn = html("div");
  let guest = null, bytes = null, last = 0;
  const widest = () => guest.curve.at(-1).sizeBytes;
  const say = (text, mark) => {
    if (said.textContent !== text) said.textContent = text;
    said.classList.toggle("bad", !mark);
    slider.setAttribute("aria-valuetext", text);
    fill(drawn, guest.curve.length ? [plotted(guest.curve, mark), curveTable(guest.curve)] : []);
  };
  const update = async () => {
    const turn = ++last, [text, mark] = await worth(guest, bytes, ask);
    if (turn === last) say(text, mark);
  };
  slider.addEventListener("input", () => {
    bytes = Math.round((slider.value / STEPS) * widest());
    update();
  });
  const show = (found) => {
    guest = found;
    chosen.hidden = !guest.curve.length;
    if (!chosen.hidden) {
      bytes ??= startOf(guest, widest());
      slider.value = Math.round((STEPS * bytes) / widest());
    }
    update();
  };
  return { element: html("section", {}, html("h2", {}, "What if"), chosen, said, drawn), show };
}

async function worth(guest, bytes, ask) {
  if (!guest.curve.length) return [`No forecast: ${guest.doubt}.`, null];
  try {
    const mark = await ask(bytes);
    if (!mark) return ["No forecast: its curve is not known any more.", null];
    return [`With ${size(bytes)}, a pool would spare ${rate(mark.readsPerSecond)} of ${rate(guest.readsPerSecond)}.`, mark];
  } catch (failed) {
    return [`No forecast: ${failed.message}`, null];
  }
}

export function guestFacts(guest) {
  const of = (caption, pairings) => (pairings.length ? pairingsTable(caption, pairings, new Set()) : html("p", {}, `${caption}: nothing.`));
  return [
    html("h2", {}, guest.guest), facts(guest), of("Lends", guest.lends), of("Borrows", guest.borrows),
  ];
}

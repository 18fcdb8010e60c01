// A guest: what it is, its curve, and what a pool of another size would spare it.
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

// `ask` gives what a size in bytes is worth. This part is made once: readings must not take the slider out of a hand.
export function whatIf(guest, ask) {
  const widest = guest.curve.at(-1).sizeBytes;
  const borrowed = guest.borrows.reduce((sum, one) => sum + one.sizeBytes, 0);
  const start = Math.min(borrowed || widest / 2, widest);
  const slider = html("input", { type: "range", id: "size", min: 0, max: STEPS, step: 1, value: Math.round((STEPS * start) / widest) });
  const said = html("output", { for: "size", id: "whatif" }), drawn = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Plot" });
  let last = 0;
  const update = async () => {
    const turn = ++last, bytes = Math.round((slider.value / STEPS) * widest);
    const mark = await ask(bytes);
    if (turn !== last || !mark) return;
    const text = `With ${size(bytes)}, a pool would spare ${rate(mark.readsPerSecond)} of ${rate(guest.readsPerSecond)}.`;
    slider.setAttribute("aria-valuetext", text);
    said.textContent = text;
    drawn.replaceChildren(plot(guest.curve, mark));
  };
  slider.addEventListener("input", update);
  update();
  return html("section", {},
    html("h2", {}, "What if"),
    html("label", { for: "size" }, "Size of the pool for this guest"), slider, said, drawn,
    table("Curve", [
      { title: "Size", figure: true, of: (one) => size(one.sizeBytes) },
      { title: "Disk reads spared", figure: true, of: (one) => rate(one.readsPerSecond) },
    ], guest.curve));
}

export function guestFacts(guest) {
  const of = (caption, pairings) => (pairings.length ? pairingsTable(caption, pairings, new Set()) : html("p", {}, `${caption}: nothing.`));
  return [
    html("h2", {}, guest.guest), facts(guest), of("Lends", guest.lends), of("Borrows", guest.borrows),
    guest.doubt ? html("p", {}, `No forecast: ${guest.doubt}.`) : null,
  ];
}

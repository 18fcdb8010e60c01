// The map: a box for each node, in it its guests, and a line from each lender to its borrower.
import { guestLink, html, rate, size, svg, table } from "./elements.js";

const BOX = 220, ROW = 34, HEAD = 30, PAD = 10, ACROSS = 150, DOWN = 50, MOST_ACROSS = 4;
const THIN = 2, THICK = 14;
const WORTH = ["nothing, or not known", "up to a third of the most", "up to two thirds of it", "the most reads a second"];

// Where each node and each guest is.
export function layout(nodes) {
  const places = { nodes: [], guests: new Map(), width: 0, height: 0 };
  let top = PAD;
  for (let at = 0; at < nodes.length; at += MOST_ACROSS) {
    const row = nodes.slice(at, at + MOST_ACROSS);
    row.forEach((node, column) => {
      const x = PAD + ACROSS / 2 + column * (BOX + ACROSS);
      const height = HEAD + PAD + node.guests.length * ROW;
      places.nodes.push({ node, x, y: top, height });
      node.guests.forEach((guest, line) => places.guests.set(guest.guest, { guest, x: x + PAD, y: top + HEAD + line * ROW }));
      places.width = Math.max(places.width, x + BOX + ACROSS / 2 + PAD);
    });
    top += Math.max(...row.map((node) => HEAD + PAD + node.guests.length * ROW)) + DOWN;
  }
  places.height = top;
  return places;
}

export function thickness(bytes, most) {
  return most ? THIN + (THICK - THIN) * Math.sqrt((bytes || 0) / most) : THIN;
}

export function worth(reads, most) {
  return reads && most ? Math.max(1, Math.ceil((3 * reads) / most)) : 0;
}

function curved(from, to) {
  const wide = BOX - 2 * PAD, high = (ROW - 8) / 2;
  const [y1, y2] = [from.y + high, to.y + high];
  if (from.x === to.x) {
    const x = from.x + wide, out = x + ACROSS / 2.5;
    return `M${x} ${y1}C${out} ${y1} ${out} ${y2} ${x} ${y2}`;
  }
  const [x1, x2] = from.x < to.x ? [from.x + wide, to.x] : [from.x, to.x + wide];
  const bend = (x2 - x1) / 2;
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

const keyOf = (one) => `${one.pool} ${one.lender} ${one.borrower}`;

function line(one, places, mostUsed, mostWorth) {
  const [from, to] = [places.guests.get(one.lender), places.guests.get(one.borrower)];
  const said = `${one.lender} lends ${size(one.usedBytes)} to ${one.borrower} (${one.state}), ${rate(one.sparedPerSecond)} spared`;
  return svg("path", {
    "data-key": keyOf(one),
    class: `pairing worth${worth(one.sparedPerSecond, mostWorth)}${one.state === "Connected" ? "" : " off"}`,
    d: curved(from, to),
    "stroke-width": thickness(one.usedBytes, mostUsed).toFixed(1),
  }, svg("title", {}, said));
}

function short(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function box({ guest, x, y }) {
  const state = guest.isReady ? guest.role : `${guest.role}, not ready`;
  const kind = `guest${guest.isReady ? "" : " bad"}${guest.isHidden ? " hidden" : ""}`;
  const shape = [
    svg("rect", { x, y, width: BOX - 2 * PAD, height: ROW - 8, rx: 5 }),
    svg("text", { x: x + 8, y: y + 18 }, guest.isNode ? "the node itself" : short(guest.guest, 17)),
    svg("text", { x: x + BOX - 2 * PAD - 8, y: y + 18, "text-anchor": "end", class: "role" }, guest.isReady ? short(guest.role, 9) : "✗"),
  ];
  const label = `${guest.guest}${guest.isNode ? " (node)" : ""}, ${state}`;
  if (guest.isHidden) return svg("g", { class: kind, "data-key": guest.guest, role: "img", "aria-label": `${label}, of another namespace` }, ...shape);
  return svg("a", { class: kind, "data-key": guest.guest, href: guestLink(guest.guest), "aria-label": label }, ...shape);
}

const most = (pairings, field) => Math.max(0, ...pairings.map((one) => one[field] || 0));

function picture(found) {
  const places = layout(found.nodes);
  const mostUsed = most(found.pairings, "usedBytes"), mostWorth = most(found.pairings, "sparedPerSecond");
  return svg("svg", {
    viewBox: `0 0 ${places.width} ${places.height}`, width: places.width, height: places.height, role: "group",
    "aria-label": "Map of nodes and guests; the tables below have the same",
  },
  ...places.nodes.map(({ node, x, y, height }) => svg("g", { "data-key": `node ${node.node}` },
    svg("rect", { class: "node", x, y, width: BOX, height, rx: 8 }),
    svg("text", { x: x + PAD, y: y + 20, "font-weight": "600" }, short(nodeName(node.node), 26)))),
  ...found.pairings.map((one) => line(one, places, mostUsed, mostWorth)),
  ...[...places.guests.values()].map(box));
}

function legend() {
  const sample = (level) => svg("svg", { width: 40, height: 12, "aria-hidden": "true" },
    svg("path", { class: `pairing worth${level}`, d: "M4 6H36", "stroke-width": 6 }));
  return html("ul", { class: "legend", "aria-label": "Colours of lines: disk reads spared" },
    ...WORTH.map((text, level) => html("li", {}, sample(level), text)));
}

const nodeName = (node) => node || "no node";
const linked = (name, seen) => (seen.has(name) ? html("a", { href: guestLink(name) }, name) : name);

export function pairingsTable(caption, pairings, seen) {
  return table(caption, [
    { title: "Lender", of: (one) => (one.isNode ? html("span", {}, linked(one.lender, seen), " (node)") : linked(one.lender, seen)) },
    { title: "Borrower", of: (one) => linked(one.borrower, seen) },
    { title: "Pool", of: (one) => one.pool },
    { title: "State", of: (one) => one.state },
    { title: "Size", figure: true, of: (one) => size(one.sizeBytes) },
    { title: "Used", figure: true, of: (one) => size(one.usedBytes) },
    { title: "Disk reads spared", figure: true, of: (one) => rate(one.sparedPerSecond) },
  ], pairings, keyOf);
}

const readiness = (guest) => (guest.isHidden ? "not shown: of another namespace" : guest.isReady ? "yes" : "no");

// All guests, also those that neither lend nor borrow. Who has thousands may close it.
function guestsOf(nodes, seen) {
  const guests = nodes.flatMap(({ node, guests }) => guests.map((guest) => ({ node, ...guest })));
  return html("details", { id: "guests", open: true },
    html("summary", {}, `Guests: ${guests.length} on ${nodes.length} ${nodes.length === 1 ? "node" : "nodes"}`),
    table("Guests", [
      { title: "Node", of: (one) => nodeName(one.node) },
      { title: "Guest", of: (one) => linked(one.guest, seen) },
      { title: "Role", of: (one) => one.role },
      { title: "Ready", of: readiness },
    ], guests, (one) => one.guest));
}

export function mapPage(found) {
  const guests = found.nodes.flatMap((node) => node.guests).filter((one) => !one.isHidden);
  if (!found.nodes.length) return [html("h2", {}, "No guests"), html("p", {}, "No MemoryGuest is there that you may see.")];
  const seen = new Set(guests.map((one) => one.guest));
  return [
    html("h2", {}, "Who lends to whom"),
    html("p", {}, "A line goes from a lender to its borrower. The more pages are there, the thicker it is."),
    html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Map" }, picture(found)),
    legend(),
    found.pairings.length ? pairingsTable("Pairings", found.pairings, seen) : html("p", {}, "Nobody lends to anybody."),
    guestsOf(found.nodes, seen),
    ...found.remarks.map((remark) => html("p", {}, remark)),
  ];
}

// Elements and figures. Texts become text nodes, and never markup.
const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const html = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  const mib = bytes / 2 ** 20;
  return mib < 1024 ? `${Math.round(mib)}Mi` : `${(mib / 1024).toFixed(1)}Gi`;
}

export function rate(reads) {
  return reads === null || reads === undefined ? "unknown" : `${Math.round(reads).toLocaleString("en")}/s`;
}

export const guestLink = (guest) => `#/guest/${guest.split("/").map(encodeURIComponent).join("/")}`;

// `keyOf` tells rows apart, so that a row is the same in the next reading.
export function table(caption, columns, rows, keyOf = () => null) {
  const cell = (tag, column, content) => html(tag, { class: column.figure && "figure", scope: tag === "th" && "col" }, content);
  return html("div", { class: "scroll", "data-key": caption, tabindex: "0", role: "region", "aria-label": caption },
    html("table", {},
      html("caption", {}, caption),
      html("thead", {}, html("tr", {}, ...columns.map((column) => cell("th", column, column.title)))),
      html("tbody", {}, ...rows.map((row) => html("tr", { "data-key": keyOf(row) }, ...columns.map((column) => cell("td", column, column.of(row))))))));
}

// What is shown becomes what was made. An element that is in both stays, and so do focus, scrolling, a selection and what is open.

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? `${node.nodeName} ${node.dataset.key ?? node.id}` : node.nodeName;
}

function become(shown, made) {
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    if (shown.data !== made.data) shown.data = made.data;
    return;
  }
  const isUsers = (name) => name === "open" && shown.nodeName === "DETAILS";
  for (const { name } of [...shown.attributes]) if (!made.hasAttribute(name) && !isUsers(name)) shown.removeAttribute(name);
  for (const { name, value } of made.attributes) if (shown.getAttribute(name) !== value && !isUsers(name)) shown.setAttribute(name, value);
  match(shown, [...made.childNodes]);
}

// Children are the same by their keys, and those without one by their order.
function match(parent, children) {
  const before = new Map();
  for (const node of parent.childNodes) before.set(keyOf(node), [...(before.get(keyOf(node)) ?? []), node]);
  const now = children.map((made) => {
    const same = before.get(keyOf(made))?.shift();
    if (same) become(same, made);
    return same ?? made;
  });
  for (const gone of [...before.values()].flat()) gone.remove();
  let next = parent.firstChild;
  for (const node of now) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
}

// An element that changes its place loses the focus on the way, and one that is gone leaves it to the page.
export function fill(parent, children) {
  const focused = parent.contains(document.activeElement) && document.activeElement;
  match(parent, children.filter(Boolean));
  if (!focused || focused === document.activeElement) return;
  (focused.isConnected ? focused : document.getElementById("main")).focus({ preventScroll: true });
}

// Where somebody is on the page: it comes back with the page when that is loaded again, or gone back to.
const FOCUSABLE = "a, input, summary, [tabindex]";
const main = document.getElementById("main");

const named = (one) => `${one.nodeName} ${one.getAttribute("href") ?? one.getAttribute("aria-label") ?? one.id}`;
const all = (selector) => [...main.querySelectorAll(selector)];

// Several links may lead to one guest: which of them it was is counted.
function nameOf(element) {
  const alike = all(FOCUSABLE).filter((one) => named(one) === named(element));
  return [named(element), alike.indexOf(element)];
}

function keep() {
  const focused = main.contains(document.activeElement) && main !== document.activeElement;
  const place = {
    y: scrollY,
    x: all(".scroll").map((one) => [one.getAttribute("aria-label"), one.scrollLeft]),
    closed: all("details:not([open])").map((one) => one.id),
    values: all("input").map((one) => [one.id, one.value]),
    focus: focused ? nameOf(document.activeElement) : null,
  };
  history.replaceState({ ...history.state, place }, "");
}

function set(input, value) {
  if (!input || input.value === value) return;
  input.value = value;
  input.dispatchEvent(new Event("input"));
}

// False where nobody has been here.
export function comeBack() {
  const place = history.state?.place;
  if (!place) return false;
  for (const one of all("details")) one.open = !place.closed.includes(one.id);
  for (const one of all(".scroll")) one.scrollLeft = new Map(place.x).get(one.getAttribute("aria-label")) ?? 0;
  for (const [id, value] of place.values) set(document.getElementById(id), value);
  if (place.focus) all(FOCUSABLE).filter((one) => named(one) === place.focus[0])[place.focus[1]]?.focus({ preventScroll: true });
  scrollTo(0, place.y);
  return true;
}

history.scrollRestoration = "manual";
addEventListener("beforeunload", keep);
addEventListener("click", (event) => event.target.closest?.("a") && keep(), true);

// Which page is shown, and when it is read again.
import { guestFacts, whatIf } from "./guest.js";
import { mapPage } from "./map.js";
import { html } from "./elements.js";

const EVERY = 5000;
const main = document.getElementById("main"), error = document.getElementById("error"), at = document.getElementById("at");
let shown = null, timer = 0;

async function ask(path) {
  const answer = await fetch(`api/${path}`);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  return said;
}

const guestAt = (place) => (place.startsWith("#/guest/") ? place.slice(8).split("/").map(decodeURIComponent).join("/") : null);
const query = (guest, more = "") => `guest?guest=${encodeURIComponent(guest)}${more}`;

// A reading changes what is shown; focus, scrolling and the slider stay where they are.
function replace(parent, children) {
  const focused = document.activeElement?.closest?.("a")?.getAttribute("href");
  parent.replaceChildren(...children.filter(Boolean));
  if (focused) [...parent.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
}

async function showGuest(name, isNew) {
  const guest = await ask(query(name));
  if (isNew) {
    const facts = html("div", { id: "facts" });
    const forecast = async (bytes) => (await ask(query(name, `&size=${bytes}`))).whatIf;
    main.replaceChildren(facts, ...(guest.curve.length ? [whatIf(guest, forecast)] : []), html("p", {}, html("a", { href: "#" }, "Back to the map")));
  }
  replace(document.getElementById("facts"), guestFacts(guest));
  return guest;
}

async function showMap() {
  const found = await ask("map");
  replace(main, mapPage(found));
  return found;
}

async function show() {
  clearTimeout(timer);
  const place = location.hash, name = guestAt(place), isNew = shown !== place;
  try {
    const found = await (name ? showGuest(name, isNew) : showMap());
    at.textContent = `As of ${new Date(found.at).toLocaleTimeString()}`;
    document.title = name ? `${name} · Tidepool` : "Tidepool";
    error.hidden = true;
    if (isNew && shown !== null) main.focus();
    shown = place;
  } catch (failed) {
    error.textContent = failed instanceof TypeError ? "The command has ended. Start `kubectl tidepool ui` again." : failed.message;
    error.hidden = false;
  }
  timer = setTimeout(show, EVERY);
}

addEventListener("hashchange", show);
show();

// Which page is shown, and when it is read again.
import { ask } from "./ask.js";
import { fill } from "./become.js";
import { forecast, guestFacts } from "./guest.js";
import { mapPage } from "./map.js";
import { html } from "./elements.js";
import { comeBack } from "./place.js";

const EVERY = 5000;
const main = document.getElementById("main"), error = document.getElementById("error"), at = document.getElementById("at");
let shown = null, timer = 0, turns = 0, whatIf = null;

const guestAt = (place) => (place.startsWith("#/guest/") ? place.slice(8).split("/").map(decodeURIComponent).join("/") : null);
const query = (guest, more = "") => `guest?guest=${encodeURIComponent(guest)}${more}`;
const back = () => html("p", {}, html("a", { href: "#" }, "Back to the map"));

// The slider is one element as long as its guest is shown: readings do not take it out of a hand.
function showGuest(name, guest, isNew) {
  if (isNew) {
    whatIf = forecast(async (bytes) => (await ask(query(name, `&size=${bytes}`))).whatIf);
    main.replaceChildren(html("div", { id: "facts" }), whatIf.element, back());
  }
  fill(document.getElementById("facts"), guestFacts(guest));
  whatIf.show(guest);
}

function showMap(found, isNew) {
  if (isNew) main.replaceChildren();
  fill(main, mapPage(found));
}

function arrive(isFirst) {
  if (comeBack() || isFirst) return;
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
}

// What was shown is of another place, and of this one there is nothing yet.
function leave(place) {
  main.replaceChildren(...(place ? [back()] : []));
  shown = null;
}

function say(text) {
  if (error.textContent !== text) error.textContent = text;
  error.hidden = !text;
}

// `isLatest` is asked after each wait: meanwhile somebody may have gone elsewhere.
async function read(place, isLatest) {
  const name = guestAt(place), isNew = shown !== place;
  const found = await ask(name ? query(name) : "map");
  if (!isLatest()) return;
  (name ? showGuest.bind(null, name) : showMap)(found, isNew);
  at.textContent = `As of ${new Date(found.at).toLocaleTimeString()}`;
  document.title = name ? `${name} · Tidepool` : "Tidepool";
  say("");
  if (isNew) arrive(shown === null);
  shown = place;
}

async function show() {
  clearTimeout(timer);
  const turn = ++turns, place = location.hash, isLatest = () => turn === turns;
  try {
    await read(place, isLatest);
  } catch (failed) {
    if (!isLatest()) return;
    if (shown !== place) leave(place);
    say(failed.message);
  }
  if (isLatest()) timer = setTimeout(show, EVERY);
}

addEventListener("hashchange", show);
show();

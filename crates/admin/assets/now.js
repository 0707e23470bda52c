// What happens, as it happens. The stream tells rows that are ready to be shown; here they are only put in place, at
// most once per frame, and as text.

import { toast } from "./page.js";

/** How many calls the list holds. Older ones are in the audit log. */
const ROWS_MAX = 200;
/** How many new calls in one frame are shown to be new. More would only flicker, and cost. */
const FRESH_MAX = 8;
/** How often the list is drawn at most. */
const DRAW_EVERY_MS = 150;
/** Of the time, drawing takes one part in so many at most; a slow machine draws less often, and stays usable. */
const DRAW_SHARE = 4;
/** How often a screen reader is told a summary. */
const SPOKEN_EVERY_MS = 10_000;
/** How long to wait before connecting again, doubled each time up to the last. */
const AGAIN_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

const section = document.querySelector("[data-live]");
const list = section?.querySelector("[data-calls]");
const spoken = section?.querySelector("[data-spoken]");
const lamp = section?.querySelector("[data-lamp]");
const state = section?.querySelector("[data-state]");
const missedPlace = section?.querySelector("[data-missed]");
const pause = section?.querySelector("[data-pause]");
const empty = section?.querySelector("[data-no-calls]");

/** Rows by the number of their call. */
const rows = new Map();
/** What came since the last frame, newest last, by the number of the call. */
let waiting = new Map();
let isFrameAsked = false;
/** When the list may be drawn again. */
let mayDraw = 0;
let isPaused = false;
let missed = 0;
let seen = 0;
let failed = 0;
let source;
let tries = 0;
let waits;
let scriptsWait;

for (const row of list?.querySelectorAll("tr[data-call]") ?? []) rows.set(row.dataset.call, row);

function say(word, kind) {
  if (state) state.textContent = word;
  if (lamp) lamp.className = `lamp ${kind}`;
}

function cell(label, className) {
  const made = document.createElement("td");
  made.dataset.label = label;
  made.className = className;
  return made;
}

function newRow(call) {
  const row = document.createElement("tr");
  row.dataset.call = call.call;
  const time = cell("Time", "nowrap number");
  time.textContent = call.time;
  const client = cell("Client", "name");
  client.textContent = call.client;
  const what = cell("Call", "name");
  what.textContent = call.what;
  const args = cell("Arguments", "name soft");
  args.textContent = call.arguments;
  const outcome = cell("Outcome", "");
  outcome.append(document.createElement("span"));
  row.append(time, client, what, args, outcome, cell("Took", "end nowrap number"));
  return row;
}

function fill(row, call) {
  const badge = row.cells[4].firstElementChild;
  badge.className = `badge ${call.tone}`;
  badge.textContent = call.outcome;
  row.cells[5].textContent = call.took;
}

/** Puts in place what came since the last frame. */
function draw() {
  isFrameAsked = false;
  const start = performance.now();
  mayDraw = start + DRAW_EVERY_MS;
  // After this frame, when the browser has done its part.
  setTimeout(() => {
    const now = performance.now();
    mayDraw = Math.max(mayDraw, now + (now - start) * (DRAW_SHARE - 1));
  });
  if (!list || waiting.size === 0) return;
  // Of more than fit, the oldest would be gone again at once.
  const calls = [...waiting.values()].slice(-ROWS_MAX);
  waiting = new Map();
  const fresh = document.createDocumentFragment();
  const isCalm = calls.length <= FRESH_MAX;
  for (const call of calls) {
    const number = String(call.call);
    let row = rows.get(number);
    if (!row) {
      row = newRow(call);
      row.classList.toggle("fresh", isCalm);
      rows.set(number, row);
      fresh.prepend(row);
    }
    fill(row, call);
  }
  list.prepend(fresh);
  while (rows.size > ROWS_MAX) {
    const last = list.lastElementChild;
    rows.delete(last.dataset.call);
    last.remove();
  }
  if (empty) empty.hidden = true;
}

function ask() {
  if (isPaused || isFrameAsked) return;
  isFrameAsked = true;
  // Not in every frame: what changes faster than this cannot be read, only paid for.
  setTimeout(() => requestAnimationFrame(draw), Math.max(0, mayDraw - performance.now()));
}

function take(calls) {
  for (const call of calls) {
    // Taken out first, so that the newest state is last.
    waiting.delete(call.call);
    waiting.set(call.call, call);
    if (call.ended) {
      seen += 1;
      if (call.tone === "bad") failed += 1;
    }
  }
  // While nobody looks, or while it is held, only what would still be shown is kept.
  if (waiting.size > ROWS_MAX * 2) waiting = new Map([...waiting].slice(-ROWS_MAX));
  ask();
}

/** Puts a number in all its places, by the key of its page. */
function tellCount(key, count) {
  for (const place of document.querySelectorAll(`[data-count="${key}"]`)) {
    place.hidden = count === 0 && place.closest("nav") !== null;
    place.classList.toggle("some", count > 0);
    const number = place.querySelector("[data-number]");
    if (number) number.textContent = count;
  }
}

function tellScripts(count) {
  const before = scriptsWait;
  scriptsWait = count;
  tellCount("r", count);
  if (before === undefined || before === count) return;
  if (count > before) toast(count === 1 ? "A script waits for your decision." : `${count} scripts wait for your decision.`);
  renewCards();
}

function tellWaiting(count) {
  const before = waits;
  waits = count;
  tellCount("a", count);
  if (before === undefined || before === count) return;
  const changed = section.querySelector("[data-changed]");
  if (changed) changed.hidden = false;
  if (count > before) toast(count === 1 ? "A call waits for your decision." : `${count} calls wait for your decision.`);
  renewCards();
}

function renewCards() {
  const cards = document.querySelector("[data-waiting]");
  if (cards) askForCards(cards);
}

/** The cards of what waits come from the page itself, so that they are made in one place. */
async function askForCards(place) {
  try {
    const answer = await fetch("/admin", { headers: { accept: "text/html" }, redirect: "error" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-waiting]");
    if (fresh && !place.contains(document.activeElement)) place.replaceChildren(...fresh.children);
  } catch {
    // The next change asks again.
  }
}

function drawPlots(told) {
  for (const [name, paths] of Object.entries(told.plots)) {
    const plot = document.querySelector(`[data-plot="${CSS.escape(name)}"]`);
    plot?.querySelector(".area")?.setAttribute("d", paths.area);
    plot?.querySelector(".line:not(.second)")?.setAttribute("d", paths.line);
    if (paths.second) plot?.querySelector(".second")?.setAttribute("d", paths.second);
  }
  for (const [name, text] of Object.entries(told.figures)) {
    const place = document.querySelector(`[data-figure="${CSS.escape(name)}"]`);
    if (place) place.textContent = text;
  }
}

function connect() {
  source = new EventSource(section.dataset.live);
  source.addEventListener("open", () => {
    tries = 0;
    say("live", "live");
  });
  source.addEventListener("calls", (event) => take(JSON.parse(event.data)));
  source.addEventListener("waiting", (event) => tellWaiting(JSON.parse(event.data)));
  source.addEventListener("scripts", (event) => tellScripts(JSON.parse(event.data)));
  source.addEventListener("hour", (event) => drawPlots(JSON.parse(event.data)));
  source.addEventListener("missed", (event) => {
    missed += JSON.parse(event.data);
    if (missedPlace) missedPlace.textContent = `${missed} not shown, because there were too many at once`;
  });
  source.addEventListener("error", () => {
    // The browser would try again by itself, but for ever and at once, also when nobody is signed in any more.
    // One that was refused, and not only cut off: most often because nobody is signed in any more.
    const isRefused = source.readyState === EventSource.CLOSED;
    source.close();
    source = undefined;
    if (document.hidden) return;
    say(isRefused ? "not connected: load the page again" : "not connected, trying again", "lost");
    setTimeout(connectIfSeen, AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)]);
    tries += 1;
  });
}

function connectIfSeen() {
  if (!document.hidden && !source) connect();
}

// A page that nobody sees needs no connection, of which browsers have few.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = undefined;
    say("held while out of sight", "");
  } else {
    connectIfSeen();
  }
});

pause?.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", String(isPaused));
  pause.textContent = isPaused ? "Go on" : "Pause";
  ask();
});

setInterval(() => {
  if (!spoken || seen === 0) return;
  spoken.textContent = `${seen} calls ended, ${failed} of them not well.`;
  seen = 0;
  failed = 0;
}, SPOKEN_EVERY_MS);

if (section) connectIfSeen();

// Live updates by server-sent events. The stream sends finished rows; here they are only inserted, as text, at most once
// per frame.

import { countInTitle, localizeTimes, localTime, toast } from "./page.js";

/** Rows in the list. Older calls are in the audit log. */
const ROWS_MAX = 200;
/** New rows per frame that are highlighted. More would only flicker, and cost. */
const FRESH_MAX = 8;
/** Minimum interval between redraws. */
const DRAW_EVERY_MS = 150;
/** Drawing takes at most 1/4 of the time, so a slow machine redraws less often and stays usable. */
const DRAW_SHARE = 4;
/** Interval of the screen reader summary. */
const SPOKEN_EVERY_MS = 10_000;
/** Reconnect backoff. */
const BACKOFF_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

const section = document.querySelector("[data-live]");
const list = section?.querySelector("[data-calls]");
const spoken = section?.querySelector("[data-spoken]");
const lamp = section?.querySelector("[data-lamp]");
const state = section?.querySelector("[data-state]");
const missedPlace = section?.querySelector("[data-missed]");
const pause = section?.querySelector("[data-pause]");
const empty = section?.querySelector("[data-no-calls]");

/** Rows by call ID. */
const rows = new Map();
/** Calls since the last frame, newest last, by call ID. */
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
  const began = document.createElement("time");
  began.dateTime = call.at;
  began.title = `${new Date(call.at).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  began.textContent = localTime(new Date(call.at), "second");
  time.append(began);
  const client = cell("Client", "name");
  client.textContent = call.client;
  const what = cell("Call", "");
  const link = document.createElement("a");
  link.className = "name";
  link.href = `/admin/audit/call/${call.call}`;
  link.dataset.row = "";
  link.textContent = call.what;
  what.append(link);
  const args = cell("Arguments", "name soft");
  args.textContent = call.arguments;
  const outcome = cell("Outcome", "");
  outcome.append(document.createElement("span"));
  row.append(time, client, what, args, outcome, cell("Duration", "end nowrap number"));
  return row;
}

function fill(row, call) {
  const badge = row.cells[4].firstElementChild;
  badge.className = `badge ${call.tone}`;
  badge.textContent = call.outcome;
  row.cells[5].textContent = call.took;
}

/** Draws the calls since the last frame. */
function draw() {
  isFrameAsked = false;
  const start = performance.now();
  mayDraw = start + DRAW_EVERY_MS;
  // After this frame, so that layout and paint are included.
  setTimeout(() => {
    const now = performance.now();
    mayDraw = Math.max(mayDraw, now + (now - start) * (DRAW_SHARE - 1));
  });
  if (!list || waiting.size === 0) return;
  // Older ones would be removed again at once.
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
  // Throttled: faster changes cannot be read.
  setTimeout(() => requestAnimationFrame(draw), Math.max(0, mayDraw - performance.now()));
}

function take(calls) {
  for (const call of calls) {
    // Deleted first, so that the newest state is last in the map.
    waiting.delete(call.call);
    waiting.set(call.call, call);
    if (call.ended) {
      seen += 1;
      if (call.tone === "bad") failed += 1;
    }
  }
  // Bounds the queue while the page is hidden or paused.
  if (waiting.size > ROWS_MAX * 2) waiting = new Map([...waiting].slice(-ROWS_MAX));
  ask();
}

/** Updates all counters of a section. */
function setCount(key, count) {
  for (const place of document.querySelectorAll(`[data-count="${key}"]`)) {
    place.hidden = count === 0 && place.closest("nav") !== null;
    place.classList.toggle("some", count > 0);
    const number = place.querySelector("[data-number]");
    if (number) number.textContent = count;
  }
}

function setScripts(count) {
  const before = scriptsWait;
  scriptsWait = count;
  setCount("r", count);
  if (before === undefined || before === count) return;
  if (count > before) toast(count === 1 ? "1 script needs approval." : `${count} scripts need approval.`);
  renewCards();
}

function setWaiting(count) {
  const before = waits;
  waits = count;
  setCount("a", count);
  countInTitle(count);
  if (before === undefined || before === count) return;
  const changed = section.querySelector("[data-changed]");
  if (changed) changed.hidden = false;
  if (count > before) {
    const text = count === 1 ? "1 call needs approval." : `${count} calls need approval.`;
    toast(text);
    notify(text);
  }
  renewCards();
}

/** Whether this person allowed notifications, in this browser. */
function mayNotify() {
  return "Notification" in window && Notification.permission === "granted";
}

/** Shows a notification of the browser while the page is in the background. The text has a number only, no arguments. */
function notify(text) {
  if (!document.hidden || !mayNotify()) return;
  try {
    // One at a time: a newer one replaces it.
    const shown = new Notification("Portcullis", { body: text, tag: "portcullis-approvals" });
    shown.addEventListener("click", () => {
      window.focus();
      shown.close();
    });
  } catch {
    // Browsers of phones show notifications of service workers only. The title has the count.
  }
}

const notifyButton = document.querySelector("[data-notify]");
if (notifyButton && "Notification" in window) {
  notifyButton.hidden = Notification.permission !== "default";
  notifyButton.addEventListener("click", async () => {
    const answer = await Notification.requestPermission();
    notifyButton.hidden = answer !== "default";
    if (answer === "granted") toast("You are notified while a page of the hub stays open.");
  });
}

function renewCards() {
  const cards = document.querySelector("[data-waiting]");
  if (cards) askForCards(cards);
}

/** Reloads the pending cards from the page, so that they are rendered in one place only. */
async function askForCards(place) {
  try {
    const answer = await fetch("/admin", { headers: { accept: "text/html" }, redirect: "error" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-waiting]");
    if (fresh && !place.contains(document.activeElement)) place.replaceChildren(...fresh.children);
    localizeTimes(place);
  } catch {
    // The next change retries.
  }
}

function drawCharts(update) {
  for (const [name, drawing] of Object.entries(update.charts)) {
    const chart = document.querySelector(`[data-chart="${CSS.escape(name)}"]`);
    if (!chart) continue;
    const paths = { ".area": "area", ".bars:not(.faulty)": "bars", ".faulty": "faulty", ".first": "line", ".second": "second" };
    for (const [selector, path] of Object.entries(paths)) chart.querySelector(selector)?.setAttribute("d", drawing[path]);
    for (const label of ["top", "middle"]) {
      const place = chart.querySelector(`[data-${label}]`);
      if (place) place.textContent = drawing[label];
    }
    chart.querySelectorAll(".hit").forEach((slot, at) => {
      slot.dataset.at = update.slots[at]?.at ?? "";
      slot.dataset.tip = update.slots[at]?.tip ?? "";
    });
    chart.querySelectorAll(".axis time").forEach((tick, at) => {
      tick.dateTime = update.ticks[at] ?? "";
      tick.title = `${tick.dateTime.slice(0, 19).replace("T", " ")} UTC`;
    });
    localizeTimes(chart);
  }
  for (const [name, text] of Object.entries(update.figures)) {
    const place = document.querySelector(`[data-figure="${CSS.escape(name)}"]`);
    if (place) place.textContent = text;
  }
}

function connect() {
  source = new EventSource(section.dataset.live);
  source.addEventListener("open", () => {
    tries = 0;
    say("Live", "live");
  });
  source.addEventListener("calls", (event) => take(JSON.parse(event.data)));
  source.addEventListener("waiting", (event) => setWaiting(JSON.parse(event.data)));
  source.addEventListener("scripts", (event) => setScripts(JSON.parse(event.data)));
  source.addEventListener("hour", (event) => drawCharts(JSON.parse(event.data)));
  source.addEventListener("missed", (event) => {
    missed += JSON.parse(event.data);
    if (missedPlace) missedPlace.textContent = `${missed} calls skipped`;
  });
  source.addEventListener("error", () => {
    // Closed here, because the browser would reconnect at once and forever, even without a session. `CLOSED` means that
    // the server refused the stream, most often because the session expired.
    const isRefused = source.readyState === EventSource.CLOSED;
    source.close();
    source = undefined;
    if (document.hidden && !mayNotify()) return;
    say(isRefused ? "Disconnected. Reload the page" : "Reconnecting", "lost");
    setTimeout(connectIfSeen, BACKOFF_MS[Math.min(tries, BACKOFF_MS.length - 1)]);
    tries += 1;
  });
}

function connectIfSeen() {
  if ((!document.hidden || mayNotify()) && !source) connect();
}

// A hidden page needs no connection, unless it notifies; browsers limit connections per host.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && mayNotify()) return;
  if (document.hidden) {
    source?.close();
    source = undefined;
    say("Paused in background", "");
  } else {
    connectIfSeen();
  }
});

pause?.addEventListener("click", () => {
  isPaused = !isPaused;
  pause.setAttribute("aria-pressed", String(isPaused));
  pause.textContent = isPaused ? "Resume" : "Pause";
  ask();
});

setInterval(() => {
  if (!spoken || seen === 0) return;
  spoken.textContent = `${seen} calls finished, ${failed} failed.`;
  seen = 0;
  failed = 0;
}, SPOKEN_EVERY_MS);

if (section) connectIfSeen();

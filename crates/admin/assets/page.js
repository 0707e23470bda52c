// Progressive enhancement of every page: times in the reader's zone, tooltips of charts, copy buttons, keyboard shortcuts. No
// decision needs it.

const root = document.documentElement;
root.classList.add("scripted");

/** Refresh interval of relative times. */
const AGO_EVERY_MS = 20_000;
/** Timeout for the second key of a shortcut such as `g a`. */
const SECOND_KEY_MS = 1_500;
/** How long a toast is shown. */
const TOAST_MS = 6_000;

/** Shows a toast, also to screen readers. Text only, never HTML. */
export function toast(text) {
  const place = document.querySelector(".toasts");
  if (!place) return;
  const note = document.createElement("div");
  note.textContent = text;
  place.append(note);
  setTimeout(() => note.remove(), TOAST_MS);
}

/** Formats like `ago` in src/page/formatting.rs. */
export function ago(then, now) {
  const seconds = Math.round((now - then) / 1000);
  const [past, s] = [seconds >= 0, Math.abs(seconds)];
  let amount;
  if (s < 5) return "now";
  if (s < 60) amount = `${s} s`;
  else if (s < 3600) amount = `${Math.floor(s / 60)} min`;
  else if (s < 86_400) amount = `${Math.floor(s / 3600)} h`;
  else amount = `${Math.floor(s / 86_400)} d`;
  return past ? `${amount} ago` : `in ${amount}`;
}

const title = document.title;

/** Puts the number of pending approvals before the title, so that it is seen in another tab. */
export function countInTitle(count) {
  document.title = count > 0 ? `(${count}) ${title}` : title;
}
countInTitle(Number(document.querySelector('nav [data-count="a"] [data-number]')?.textContent ?? 0));
const two = (number) => String(number).padStart(2, "0");
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/** Formats in the reader's zone, like `TimeDisplay` in src/page/formatting.rs. */
export function localTime(at, form) {
  const minute = `${two(at.getHours())}:${two(at.getMinutes())}`;
  const second = `${minute}:${two(at.getSeconds())}`;
  if (form === "day") return `${WEEKDAYS[at.getDay()]} ${at.getDate()}`;
  if (form === "minute") return minute;
  if (form === "second") return second;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${second}`;
}

/** Shows the times of the hub in the reader's zone. Their tooltips stay in UTC. */
export function localizeTimes(place = document) {
  for (const time of place.querySelectorAll("time[data-local]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.getTime())) time.textContent = localTime(at, time.dataset.local);
  }
}
localizeTimes();

// One tooltip for all charts, beside the period that is pointed at.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);

function hideTip() {
  tip.hidden = true;
  document.querySelector(".hit.pointed")?.classList.remove("pointed");
}

/** Makes the native tooltips of a chart into the quick one, which a finger can open too. */
function adoptTips(chart) {
  for (const slot of chart.querySelectorAll(".hit")) {
    const title = slot.querySelector("title");
    slot.dataset.tip = title?.textContent.split(": ").slice(1).join(": ") ?? "";
    title?.remove();
  }
  const show = (event) => {
    const slot = event.target.closest?.(".hit");
    hideTip();
    if (!slot) return;
    slot.classList.add("pointed");
    const time = document.createElement("strong");
    time.textContent = localTime(new Date(slot.dataset.at), "full").slice(0, -3);
    tip.replaceChildren(time, ` ${slot.dataset.tip}`);
    tip.hidden = false;
    const [at, size] = [slot.getBoundingClientRect(), tip.getBoundingClientRect()];
    const left = Math.max(8, Math.min(at.left + at.width / 2 - size.width / 2, innerWidth - size.width - 8));
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.max(8, at.top - size.height - 8)}px`;
  };
  chart.addEventListener("pointermove", show);
  chart.addEventListener("pointerdown", show);
  // A finger leaves when it is lifted; its tooltip stays until the next tap.
  chart.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") hideTip();
  });
}
document.querySelectorAll("[data-chart] svg").forEach(adoptTips);
addEventListener("scroll", hideTip, { passive: true });
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest("[data-chart]")) hideTip();
});

function refreshTimes() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const then = Date.parse(time.dateTime);
    if (!Number.isNaN(then)) time.textContent = ago(then, now);
  }
}
setInterval(refreshTimes, AGO_EVERY_MS);

// On a phone the navigation is a scrolling row; the current section should be visible.
const here = document.querySelector(".pages [aria-current]");
const pages = here?.closest(".pages");
if (pages) pages.scrollLeft = here.offsetLeft - (pages.clientWidth - here.offsetWidth) / 2;

// Move the focus to the result of a form.
const answer = document.querySelector("[data-focus]");
if (answer) {
  answer.focus({ preventScroll: true });
  answer.scrollIntoView({ block: "nearest" });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.open) document.getElementById(button.dataset.open)?.showModal();
  if (button.dataset.copy) {
    const text = document.getElementById(button.dataset.copy)?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    } catch {
      toast("Could not copy. Select the text instead.");
    }
  }
});

// Prevents double submits.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method === "dialog") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
// Also for pages restored from the back/forward cache.
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

let waitsForSecondKey = 0;

function isTyping(element) {
  return element.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName);
}

function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
  rows[next].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const isSecond = Date.now() < waitsForSecondKey;
  waitsForSecondKey = 0;
  if (isSecond) {
    const link = document.querySelector(`.pages a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  switch (event.key) {
    case "g":
      waitsForSecondKey = Date.now() + SECOND_KEY_MS;
      break;
    case "j":
      step(1);
      break;
    case "k":
      step(-1);
      break;
    case "/": {
      const search = document.querySelector("[data-search], [role=search] input:not([type=hidden])");
      if (!search) return;
      event.preventDefault();
      search.focus();
      search.select();
      break;
    }
    case "?":
      document.getElementById("keys")?.showModal();
      break;
    default:
  }
});

// Whether everyone can use a page: names, headings, landmarks, contrast, room on a small screen.

/** Runs in the page. Returns what is wrong with it, in words. */
export function problemsOf() {
  const found = [];
  const say = (what, element) => {
    const text = (element?.outerHTML ?? "").slice(0, 140);
    found.push(text ? `${what}: ${text}` : what);
  };
  const isSeen = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });

  if (document.documentElement.lang !== "en") say("the page has no language");
  if (!document.title) say("the page has no title");
  if (document.querySelectorAll("main").length !== 1) say("there is not one main landmark");
  if (document.querySelectorAll("h1").length !== 1) say("there is not one first heading");

  const ids = new Set();
  for (const element of document.querySelectorAll("[id]")) {
    if (ids.has(element.id)) say("an id is there twice", element);
    ids.add(element.id);
  }
  for (const name of ["aria-labelledby", "aria-describedby", "for"]) {
    for (const element of document.querySelectorAll(`[${name}]`)) {
      for (const id of element.getAttribute(name).split(/\s+/)) {
        if (!document.getElementById(id)) say(`${name} leads nowhere`, element);
      }
    }
  }

  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    if (!isSeen(heading) || heading.closest("dialog")) continue;
    const own = Number(heading.tagName[1]);
    if (own > level + 1) say(`a heading of level ${own} follows one of level ${level}`, heading);
    level = own;
  }

  const nameOf = (element) => {
    const by = element.getAttribute("aria-labelledby");
    if (by) return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    if (element.getAttribute("aria-label")) return element.getAttribute("aria-label");
    if (element.labels?.length) return [...element.labels].map((label) => label.textContent).join(" ");
    return `${element.textContent} ${element.getAttribute("title") ?? ""} ${element.getAttribute("alt") ?? ""}`;
  };
  const controls = "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=img], [role=region], img";
  for (const control of document.querySelectorAll(controls)) {
    const isField = ["INPUT", "SELECT", "TEXTAREA"].includes(control.tagName);
    const name = isField && !control.labels?.length && !control.hasAttribute("aria-label") ? "" : nameOf(control);
    if (isSeen(control) && !name.trim()) say("a control has no name", control);
  }
  for (const element of document.querySelectorAll("[style], [onclick], [onload], [onerror], style")) {
    say("something is inline", element);
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.querySelector("th[scope=col]")) say("a table has no headings", table);
  }

  const numbers = (colour) => {
    const found = colour.match(/^rgba?\(([^)]+)\)$/);
    if (!found) return undefined;
    const [r, g, b, a = "1"] = found[1].split(/[\s,/]+/);
    return [Number(r), Number(g), Number(b), Number(a)];
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
  const light = (colour) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(colour[0]) + 0.7152 * part(colour[1]) + 0.0722 * part(colour[2]);
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (!colour) return undefined;
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => [...over(top, below), 1], [255, 255, 255, 1]);
  };
  const told = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !isSeen(element) || element.closest(":disabled, .editor, option")) continue;
    const style = getComputedStyle(element);
    const [colour, below] = [numbers(style.color), ground(element)];
    if (!colour || !below) {
      say(`a colour cannot be read (${style.color})`, element);
      continue;
    }
    const [a, b] = [light(over(colour, below)), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = Number.parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const key = `${style.color} on ${below.slice(0, 3).map(Math.round)}`;
    if (ratio < (isLarge ? 3 : 4.5) && !told.has(key)) {
      told.add(key);
      say(`contrast is ${ratio.toFixed(2)} (${key})`, element);
    }
  }

  if (document.documentElement.scrollWidth > document.documentElement.clientWidth + 1) {
    const wide = [...document.querySelectorAll("body *")].filter(
      (element) =>
        element.getBoundingClientRect().right > document.documentElement.clientWidth + 1 &&
        isSeen(element) &&
        !element.closest(".pages, .sheet, .difference"),
    );
    say(`the page is wider than the screen (${document.documentElement.scrollWidth})`, wide.at(-1));
  }
  return found;
}

/** A page on which all of this is wrong, to see that it is found. */
export const WRONG = `<!doctype html><title></title><h1>One</h1><h3 id="a">Three</h3><p id="a" style="color:#999">pale</p>
<button></button><input><table><tr><td>x</td></tr></table><div aria-labelledby="gone"></div><img src="data:,">
<pre>${"x".repeat(4000)}</pre>`;
/** What has to be found on it. */
export const WRONG_FOUND = [
  "no language", "no title", "main landmark", "id is there twice", "leads nowhere", "level 3 follows", "no name", "inline",
  "table has no headings", "contrast is", "wider than the screen",
];

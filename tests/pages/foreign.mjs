// What strangers write has to stay text. The first two run in the page.

/** No element of the page may come from what somebody wrote. */
export function madeElements() {
  return [...document.querySelectorAll("main script, main img, main style, main iframe, main [onerror], main [onload], main a[href^=javascript]")].map(
    (element) => element.outerHTML.slice(0, 100),
  );
}

/** No character that hides, turns or orders may be in the page as it is. */
export function rawCharacters() {
  const raw = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e0fff}]/u;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    // A field gives back exactly what was put in.
    if (node.parentElement.closest("textarea, .editor")) continue;
    if (raw.test(node.textContent)) found.push(JSON.stringify(node.textContent.slice(0, 80)));
  }
  return found;
}

/** Returns the characters of a text that hide, turn or order and that a page with it neither marks nor spells out. */
export function notShown(text, page) {
  const shown = page.toLowerCase();
  const missing = [];
  for (const character of new Set(text)) {
    const hides = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e0fff}]/u;
    if (!hides.test(character)) continue;
    const point = character.codePointAt(0);
    const hex = point.toString(16).padStart(4, "0");
    const units = [...Array(character.length).keys()].map((at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`).join("");
    // By its number, as JSON writes it, as Rust does; or spelt out, with others of its kind.
    const ways = [`u+${hex}`, units, `\\u{${point.toString(16)}}`, { "\b": "\\b", "\f": "\\f", "\r": "\\r" }[character] ?? "\0"];
    const isSpelt = point >= 0xe0000 && /⟦(tags|selectors): |⟦u\+e0/.test(shown);
    if (!isSpelt && !ways.some((way) => shown.includes(way))) missing.push(`U+${hex}`);
  }
  return missing;
}

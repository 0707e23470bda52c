// What strangers write has to stay text. Both run in the page.

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

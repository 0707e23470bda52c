// Starlark syntax highlighting, for read-only source and behind the edit field.

const WORDS = new Set(
  "and break continue def elif else for if in lambda load not or pass return while True False None".split(" "),
);
/** Longer texts are not highlighted, so that typing stays fast. */
const COLOURED_CHARS_MAX = 60_000;

const TOKEN =
  /(?<note>#[^\n]*)|(?<text>[rb]?(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(?<number>\b\d[\w.]*)|(?<name>[A-Za-z_]\w*)(?<call>\s*\()?/g;

/** Tokenizes a text; plain text has no kind. */
export function parts(text) {
  const found = [];
  let from = 0;
  const put = (kind, to) => {
    if (to > from) found.push({ kind, from, to });
    from = to;
  };
  if (text.length > COLOURED_CHARS_MAX) return [{ kind: "", from: 0, to: text.length }];
  for (const match of text.matchAll(TOKEN)) {
    const { note, text: quoted, number, name, call } = match.groups;
    put("", match.index);
    if (note !== undefined) put("note", match.index + note.length);
    else if (quoted !== undefined) put("text", match.index + quoted.length);
    else if (number !== undefined) put("number", match.index + number.length);
    else if (WORDS.has(name)) put("word", match.index + name.length);
    else if (call !== undefined) put("call", match.index + name.length);
    else put("", match.index + name.length);
  }
  put("", text.length);
  return found;
}

function piece(kind, node) {
  if (!kind) return node;
  const span = document.createElement("span");
  span.className = `tok-${kind}`;
  span.append(node);
  return span;
}

/** Highlights an element. The marks of hidden characters are kept. */
function colour(place) {
  const text = place.textContent;
  const nodes = [...place.childNodes];
  const coloured = document.createDocumentFragment();
  const all = parts(text);
  let at = 0;
  let part = 0;
  for (const node of nodes) {
    const end = at + node.textContent.length;
    if (node.nodeType !== Node.TEXT_NODE) {
      coloured.append(node);
      at = end;
      while (part < all.length && all[part].to <= at) part += 1;
      continue;
    }
    while (at < end) {
      const to = Math.min(end, all[part].to);
      coloured.append(piece(all[part].kind, document.createTextNode(text.slice(at, to))));
      at = to;
      if (all[part].to <= at) part += 1;
    }
  }
  place.replaceChildren(coloured);
}

function light(editor) {
  const field = editor.querySelector("textarea");
  const behind = document.createElement("pre");
  behind.setAttribute("aria-hidden", "true");
  editor.prepend(behind);
  editor.classList.add("lit");
  const show = () => {
    // An empty last line would have no height.
    const text = `${field.value}\n`;
    behind.replaceChildren(
      ...parts(text).map(({ kind, from, to }) => piece(kind, document.createTextNode(text.slice(from, to)))),
    );
  };
  field.addEventListener("input", show);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Tab" || event.shiftKey || event.ctrlKey || field.dataset.escaped) return;
    event.preventDefault();
    field.setRangeText("    ", field.selectionStart, field.selectionEnd, "end");
    show();
  });
  // After Escape, Tab leaves the field, for keyboard users.
  field.addEventListener("keyup", (event) => {
    if (event.key === "Escape") field.dataset.escaped = "yes";
  });
  field.addEventListener("blur", () => delete field.dataset.escaped);
  show();
}

for (const place of document.querySelectorAll("[data-language=star]")) colour(place);
for (const editor of document.querySelectorAll("[data-editor]")) light(editor);

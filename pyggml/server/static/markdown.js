// Render a model's Markdown. marked only splits it into tokens; the elements are made here, so that a model's HTML
// stays text, and no external resources are loaded.

import { Lexer } from "./vendor/marked/marked.esm.js";
import { copyButton, make } from "./dom.js";

const LINKS = new Set(["http:", "https:", "mailto:"]);
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", hellip: "…", ndash: "–", mdash: "—" };

/** An element that renders a growing text; unchanged blocks are kept. */
export class MarkdownView {
  constructor() {
    this.element = make("div", { className: "markdown" });
    this.shown = [];
  }

  show(text) {
    try {
      const tokens = Lexer.lex(text, { gfm: true, breaks: true });
      const from = this.#unchanged(tokens);
      // One node per token, so that they can be counted.
      const nodes = tokens.slice(from).map((token) => block(token) ?? new Comment());
      while (this.element.childNodes.length > from) this.element.lastChild.remove();
      this.element.append(...nodes);
      this.shown = tokens.map((token) => token.raw);
    } catch {
      // Nested too deeply.
      this.element.replaceChildren(make("p", { className: "plain", textContent: text }));
      this.shown = [];
    }
  }

  /** Number of unchanged blocks at the start. */
  #unchanged(tokens) {
    // A definition at the end changes links before it.
    if (Object.keys(tokens.links).length) return 0;
    const first = tokens.findIndex((token, index) => token.raw !== this.shown[index]);
    return first < 0 ? tokens.length : first;
  }
}

const BLOCKS = {
  blockquote: (token) => make("blockquote", {}, ...blocks(token.tokens)),
  code,
  def: () => null,
  heading: (token) => make(`h${Math.min(6, token.depth + 2)}`, {}, ...inline(token.tokens)),
  hr: () => make("hr"),
  html: (token) => make("p", { className: "plain", textContent: token.text.trimEnd() }),
  list,
  paragraph: (token) => make("p", {}, ...inline(token.tokens)),
  space: () => null,
  table,
};

const INLINES = {
  br: () => make("br"),
  checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  codespan: (token) => make("code", { textContent: token.text }),
  del: (token) => make("del", {}, ...inline(token.tokens)),
  em: (token) => make("em", {}, ...inline(token.tokens)),
  escape: (token) => token.text,
  html: (token) => token.text,
  image: (token) => link(token, [token.text || "image"]),
  link: (token) => link(token, inline(token.tokens)),
  strong: (token) => make("strong", {}, ...inline(token.tokens)),
  text: (token) => (token.escaped ? token.text : entities(token.text)),
};

const blocks = (tokens) => tokens.map(block).filter((node) => node !== null);

function block(token) {
  const shown = BLOCKS[token.type];
  // The items of a tight list hold inline text instead of blocks.
  return shown ? shown(token) : make("span", {}, ...inline([token]));
}

function inline(tokens) {
  return tokens.flatMap((token) => {
    if (token.type === "text" && token.tokens) return inline(token.tokens);
    return [INLINES[token.type]?.(token) ?? token.raw];
  });
}

function code(token) {
  const language = token.lang?.split(/\s/)[0] ?? "";
  const text = make("pre", { tabIndex: 0, role: "region", "aria-label": `Code ${language}`.trim() });
  text.append(make("code", { textContent: token.text }));
  const bar = make("div", { className: "code-bar" }, make("span", { textContent: language }));
  bar.append(copyButton(() => token.text, "the code"));
  return make("div", { className: "code" }, bar, text);
}

function list(token) {
  const items = token.items.map((item) => make("li", {}, ...blocks(item.tokens)));
  return token.ordered ? make("ol", { start: token.start || 1 }, ...items) : make("ul", {}, ...items);
}

function table(token) {
  const row = (cells, tag) => make("tr", {}, ...cells.map((cell) => make(tag, align(cell), ...inline(cell.tokens))));
  const head = make("thead", {}, row(token.header, "th"));
  const body = make("tbody", {}, ...token.rows.map((cells) => row(cells, "td")));
  const about = { className: "table", tabIndex: 0, role: "region", "aria-label": "Table" };
  return make("div", about, make("table", {}, head, body));
}

const align = (cell) => (cell.align ? { className: cell.align } : {});

function link(token, children) {
  const href = allowed(token.href);
  // Show the link's source, so that its target is visible.
  if (href === null) return token.raw;
  return make("a", { href, target: "_blank", rel: "noopener noreferrer", title: href }, ...children);
}

/** The URL, if it is safe to link to. */
function allowed(href) {
  try {
    const url = new URL(href); // relative URLs have no meaning here
    return LINKS.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function entities(text) {
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]+));/gi, (whole, decimal, hex, name) => {
    if (name) return ENTITIES[name] ?? whole;
    const point = decimal ? parseInt(decimal, 10) : parseInt(hex, 16);
    return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : whole;
  });
}

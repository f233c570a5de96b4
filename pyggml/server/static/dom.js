// Make elements. Text stays text: nothing on this page is parsed as HTML.

/** Make an element with properties, attributes (for names that are no properties), and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Make an SVG element with attributes. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function button(label, onclick, properties = {}) {
  return make("button", { type: "button", textContent: label, onclick, ...properties });
}

export const byId = (id) => document.getElementById(id);

/** Announce a message to screen readers. */
export function announce(text) {
  byId("status").textContent = text;
}

/** Make a button that copies the result of `text()`. */
export function copyButton(text, what) {
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text());
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed"; // browsers allow it only on https and on localhost
    }
    announce(copy.textContent);
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  }, { "aria-label": `Copy ${what}` });
  return copy;
}

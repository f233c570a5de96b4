// Makes elements. Text only ever becomes text: nothing on this page is parsed as HTML.

/** An element with properties, attributes where it has no such property, and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** An SVG element with attributes. */
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

/** Tells those who listen to the page rather than look at it. */
export function announce(text) {
  byId("status").textContent = text;
}

/** A button that copies what `text()` returns. */
export function copyButton(text, what) {
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text());
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed"; // browsers allow it on https and on this machine's own address only
    }
    announce(copy.textContent);
    setTimeout(() => (copy.textContent = "Copy"), 2000);
  }, { "aria-label": `Copy ${what}` });
  return copy;
}

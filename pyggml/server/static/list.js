// The list of conversations: a sidebar, or an overlay on narrow pages.

import { button, byId, make } from "./dom.js";
import { titleOf } from "./conversation.js";

const narrow = matchMedia("(max-width: 48rem)");
let isOut = false;

export function listen(openNew) {
  byId("new").onclick = () => {
    move(false);
    openNew();
  };
  byId("menu").onclick = () => move(!isOut);
  byId("side").onkeydown = (event) => {
    if (event.key !== "Escape" || !isOut) return;
    event.stopPropagation();
    move(false);
    byId("menu").focus();
  };
  document.querySelector("main").addEventListener("click", () => move(false));
  narrow.onchange = () => move(false);
  move(false);
}

export function show(conversations, current, open) {
  const entries = conversations.map((conversation) => {
    const select = () => {
      move(false);
      open(conversation);
    };
    const ariaCurrent = conversation.id === current.id ? "true" : null;
    return make("li", {}, button(titleOf(conversation), select, { ariaCurrent }));
  });
  byId("list").replaceChildren(...entries);
}

function move(out) {
  isOut = out;
  byId("side").classList.toggle("out", out);
  // Hidden elements must not be focusable.
  byId("side").inert = narrow.matches && !out;
  byId("menu").ariaExpanded = String(out);
  if (out) byId("new").focus();
}

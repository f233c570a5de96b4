// The list of conversations: a sidebar, or an overlay on narrow pages.

import { button, byId, make } from "./dom.js";
import { titleOf } from "./conversation.js";

const narrow = matchMedia("(max-width: 48rem)");
let isOut = false;

export function listen(openNew) {
  byId("new").onclick = () => {
    putAway();
    openNew();
  };
  byId("menu").onclick = () => move(!isOut);
  byId("side").onkeydown = (event) => {
    if (event.key !== "Escape" || !isOut) return;
    event.stopPropagation();
    putAway();
    byId("menu").focus();
  };
  document.querySelector("main").addEventListener("click", putAway);
  narrow.onchange = () => move(false);
  move(false);
}

export function show(conversations, current, open) {
  const entries = conversations.map((conversation) => {
    const entry = button(titleOf(conversation), () => {
      putAway();
      open(conversation);
    });
    if (conversation.id === current.id) entry.setAttribute("aria-current", "true");
    return make("li", {}, entry);
  });
  byId("list").replaceChildren(...entries);
}

function putAway() {
  if (isOut) move(false);
}

function move(out) {
  isOut = out;
  byId("side").classList.toggle("out", out);
  // Hidden elements must not be focusable.
  byId("side").inert = narrow.matches && !out;
  byId("menu").setAttribute("aria-expanded", String(out));
  if (out) byId("new").focus();
}

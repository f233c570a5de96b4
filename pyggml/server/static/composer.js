// Where a message is written, and the button that sends it or stops its answer.

import { byId } from "./dom.js";

const prompt = byId("prompt");
const button = byId("send");
let isAnswering = false;

/** `send(text)` and `stop()`. */
export function listen({ send, stop }) {
  const submit = () => {
    const text = prompt.value.trim();
    if (!text || isAnswering) return;
    prompt.value = "";
    fit();
    send(text);
  };
  byId("composer").onsubmit = (event) => {
    event.preventDefault();
    if (isAnswering) stop();
    else submit();
  };
  prompt.onkeydown = (event) => {
    // While characters are composed, as in Japanese, Enter chooses one.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  };
  prompt.oninput = fit;
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isAnswering && !document.querySelector("dialog[open]")) stop();
  });
}

export function showAnswering(is) {
  isAnswering = is;
  button.textContent = is ? "Stop" : "Send";
  button.classList.toggle("stop", is);
}

/** Not on a phone, whose keyboard would cover half of the page. */
export function focus() {
  if (matchMedia("(pointer: fine)").matches) prompt.focus();
}

/** As high as its text, up to what the style sheet allows. */
function fit() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

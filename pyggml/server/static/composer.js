// The input for a message, and the button that sends it or stops the response.

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
    // With an input method, as for Japanese, Enter selects a character.
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

/** Focus the input, except on phones, where the keyboard would cover half of the page. */
export function focus() {
  if (matchMedia("(pointer: fine)").matches) prompt.focus();
}

/** Fit the height to the text, up to the style sheet's limit. */
function fit() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

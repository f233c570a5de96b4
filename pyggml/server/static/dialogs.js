// Questions that wait for an answer. A modal dialog keeps the focus inside, and gives it back to where it was.

import { button, make } from "./dom.js";

/** Whether a person says yes. */
export async function confirmed(question, action) {
  return (await opened([make("p", { textContent: question })], action)) !== null;
}

/** A line of text, null if it was called off. */
export async function asked(label, value, action, properties = {}) {
  const field = make("input", { name: "text", value, ...properties });
  const data = await opened([make("label", {}, label, field)], action);
  return data?.get("text") ?? null;
}

/** Shows fields, and returns them as FormData; null if it was called off. `wrong(data)` says why they cannot stay so. */
export function opened(fields, action, wrong = () => "") {
  const problem = make("p", { className: "problem", role: "alert" });
  const yes = make("button", { type: "submit", className: "main", textContent: action });
  const no = button("Cancel", () => dialog.close());
  const form = make("form", {}, ...fields, problem, make("div", { className: "row" }, yes, no));
  const dialog = make("dialog", { "aria-label": action }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    let data = null;
    form.onsubmit = (event) => {
      event.preventDefault();
      const given = new FormData(form);
      problem.textContent = wrong(given);
      if (problem.textContent) return;
      data = given;
      dialog.close();
    };
    dialog.onclose = () => {
      dialog.remove();
      resolve(data);
    };
  });
}

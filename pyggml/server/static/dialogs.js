// Modal dialogs. They keep the focus inside, and restore it when closed.

import { button, make } from "./dom.js";

/** Ask for confirmation. */
export async function confirmed(question, action) {
  return (await opened([make("p", { textContent: question })], action)) !== null;
}

/** Ask for a line of text; null if cancelled. */
export async function asked(label, value, action, properties = {}) {
  const field = make("input", { name: "text", value, ...properties });
  const data = await opened([make("label", {}, label, field)], action);
  return data?.get("text") ?? null;
}

/** Show fields and return them as FormData; null if cancelled. `wrong(data)` returns an error message. */
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

// Settings of a conversation's requests. Empty fields use the server's defaults.

import { opened } from "./dialogs.js";
import { make } from "./dom.js";

export const NO_SETTINGS = { system: "", sampling: {}, more: "" };

// Names as in the API. The server validates the values.
const SAMPLING = [
  ["temperature", "Temperature", "0: always the likeliest token"],
  ["top_k", "Top k", "choose from this many of the likeliest tokens"],
  ["top_p", "Top p", "choose from the likeliest tokens with this total probability"],
  ["min_p", "Min p", "minimum probability of a token, relative to the likeliest"],
  ["repeat_penalty", "Repeat penalty", "1: none"],
  ["max_tokens", "Max tokens", "maximum length of an answer"],
  ["seed", "Seed", "the same seed gives the same answer"],
];

/** The fields of a request. */
export function sent({ sampling, more }) {
  return { ...sampling, ...(more.trim() && JSON.parse(more)) };
}

/** Edit the settings; null if cancelled. */
export async function changed(settings) {
  const data = await opened(fields(settings), "Save settings", (given) => wrongMore(given.get("more")));
  if (data === null) return null;
  const set = SAMPLING.filter(([name]) => data.get(name).trim() !== "");
  const sampling = Object.fromEntries(set.map(([name]) => [name, Number(data.get(name))]));
  return { system: data.get("system"), sampling, more: data.get("more") };
}

function fields({ system, sampling, more }) {
  const hint = "For this conversation, and new ones begun from it.";
  return [
    make("p", { className: "hint", textContent: hint }),
    make("label", {}, "System prompt", make("textarea", { name: "system", rows: 4, value: system })),
    make("div", { className: "grid" }, ...SAMPLING.map((each) => numberField(each, sampling))),
    make("label", {}, "More fields of the request, as JSON",
      make("textarea", { name: "more", rows: 3, value: more, placeholder: '{"stop": ["\\n"]}', spellcheck: false })),
  ];
}

function numberField([name, label, hint], sampling) {
  const about = `about-${name}`;
  const number = make("input", {
    name,
    type: "number",
    step: "any",
    value: sampling[name] ?? "",
    placeholder: "server's",
    "aria-describedby": about,
  });
  return make("div", {}, make("label", {}, label, number), make("small", { id: about, textContent: hint }));
}

function wrongMore(text) {
  if (!text.trim()) return "";
  try {
    const value = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? "" : "More fields must be an object, such as {\"stop\": [\"\\n\"]}.";
  } catch (error) {
    return `More fields are not JSON: ${error.message}.`;
  }
}

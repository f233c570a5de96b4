// A conversation: its turns, and the request for the next one.

import { NO_SETTINGS, sent } from "./settings.js";

const TITLE_LENGTH = 60;

/** An empty conversation with the settings of the previous one. */
export function begin(model, settings = NO_SETTINGS) {
  const now = Date.now();
  return { id: newId(), title: "", created: now, changed: now, model, settings: structuredClone(settings), turns: [] };
}

export const titleOf = (conversation) => conversation.title || firstWords(conversation) || "New conversation";

/** Add a user's turn. */
export function ask(conversation, content) {
  conversation.turns.push({ role: "user", content });
}

/** Add the turn of the next response, replacing one that failed or is to be repeated. */
export function beginAnswer(conversation) {
  if (conversation.turns.at(-1)?.role === "assistant") conversation.turns.pop();
  const { model } = conversation;
  const answer = { role: "assistant", content: "", reasoning: "", model, end: "", figures: null, problem: "" };
  conversation.turns.push(answer);
  return answer;
}

/** The body of the request for the last response. */
export function requestBody(conversation) {
  const { system } = conversation.settings;
  const messages = joined(conversation.turns.slice(0, -1));
  if (system) messages.unshift({ role: "system", content: system });
  return { model: conversation.model || "default", messages, ...sent(conversation.settings) };
}

/** Export as a file for other programs: messages in OpenAI's format. */
export function exported(conversation) {
  const { title, created, model, settings, turns } = { ...conversation, title: titleOf(conversation) };
  const messages = turns.map(({ role, content, reasoning }) => ({
    role,
    content,
    ...(reasoning && { reasoning_content: reasoning }),
  }));
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  return JSON.stringify({ title, created: new Date(created).toISOString(), model, ...sent(settings), messages }, null, 2);
}

/** Turns as messages. Consecutive user turns are merged, since many templates require alternating roles. */
function joined(turns) {
  const messages = [];
  for (const { role, content } of turns.filter((turn) => turn.content)) {
    if (messages.at(-1)?.role === role) messages.at(-1).content += `\n\n${content}`;
    else messages.push({ role, content });
  }
  return messages;
}

function firstWords(conversation) {
  const text = conversation.turns[0]?.content.trim().replace(/\s+/g, " ") ?? "";
  return text.length > TITLE_LENGTH ? `${text.slice(0, TITLE_LENGTH)}…` : text;
}

// crypto.randomUUID exists only on https and on localhost.
function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

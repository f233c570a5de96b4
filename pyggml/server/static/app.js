// The page: connects its parts, and holds the open conversation.

import { Answering } from "./answering.js";
import { key, models } from "./api.js";
import * as composer from "./composer.js";
import { ask, begin, beginAnswer, exported, requestBody, titleOf } from "./conversation.js";
import { asked, confirmed } from "./dialogs.js";
import { announce, byId, make } from "./dom.js";
import * as list from "./list.js";
import { MetricsView } from "./metrics.js";
import { changed } from "./settings.js";
import { Store } from "./store.js";
import { Transcript } from "./transcript.js";
import { inWords } from "./words.js";

const OPEN = "pyggml.open";
const SAVE_EVERY_MS = 1000;

const transcript = new Transcript(byId("transcript"), { again: () => answer(current), edit, remove: removeFrom });
const metricsView = new MetricsView(byId("metrics"));
const store = await Store.open(changedElsewhere);
/** All conversations, the latest first. */
let conversations = await store.all();
let current = conversations.find(({ id }) => id === sessionStorage.getItem(OPEN)) ?? conversations[0] ?? begin("");
/** Streaming responses by the ID of their conversation. */
const running = new Map();

// --- what is seen ------------------------------------------------------------------------------------------------

function show() {
  sessionStorage.setItem(OPEN, current.id);
  transcript.show(current, running.has(current.id));
  showAround();
}

/** Render everything except the turns. */
function showAround() {
  byId("title").textContent = titleOf(current);
  document.title = current.turns.length ? `${titleOf(current)} – pyggml` : "pyggml";
  for (const id of ["rename", "export", "delete"]) byId(id).disabled = !current.turns.length;
  list.show(conversations, current, open);
  composer.showAnswering(running.has(current.id));
  showModel();
}

function notice(words) {
  byId("notice").hidden = !words;
  byId("notice").querySelector("p").textContent = words;
}

// --- conversations -----------------------------------------------------------------------------------------------

function open(conversation) {
  current = conversation;
  location.hash = "#chat";
  show();
  composer.focus();
}

function openNew() {
  open(current.turns.length ? begin(byId("model").value, current.settings) : current);
}

async function save(conversation) {
  conversation.changed = Date.now();
  conversations = [conversation, ...conversations.filter(({ id }) => id !== conversation.id)];
  await put(conversation);
}

async function put(conversation) {
  try {
    await store.put(conversation);
  } catch (error) {
    const isFull = error?.name === "QuotaExceededError";
    const why = isFull ? "The browser has no room left" : `The browser cannot keep it (${error?.message})`;
    notice(`${why}: this conversation ends with the page. Export it, or delete others.`);
  }
}

async function changedElsewhere(id) {
  if (running.has(id)) return;
  const found = await store.get(id);
  conversations = [...conversations.filter((each) => each.id !== id), ...(found ? [found] : [])];
  conversations.sort((a, b) => b.changed - a.changed);
  if (id !== current.id) return showAround();
  current = found ?? begin(byId("model").value, current.settings);
  show();
}

async function removeConversation() {
  if (!(await confirmed(`Delete “${titleOf(current)}”? It cannot be brought back.`, "Delete"))) return;
  running.get(current.id)?.stop();
  conversations = conversations.filter(({ id }) => id !== current.id);
  await store.remove(current.id);
  open(conversations[0] ?? begin(byId("model").value, current.settings));
}

async function rename() {
  const title = await asked("Title", titleOf(current), "Rename");
  if (title === null) return;
  current.title = title.trim();
  await put(current);
  showAround();
}

function exportIt() {
  const address = URL.createObjectURL(new Blob([exported(current)], { type: "application/json" }));
  const name = titleOf(current).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "conversation";
  make("a", { href: address, download: `${name}.json` }).click();
  URL.revokeObjectURL(address);
}

async function changeSettings() {
  const settings = await changed(current.settings);
  if (settings === null) return;
  current.settings = settings;
  if (current.turns.length) await put(current);
}

// --- turns -------------------------------------------------------------------------------------------------------

function send(text) {
  ask(current, text);
  answer(current);
}

function edit(turn, text) {
  if (running.has(current.id)) return;
  cutFrom(turn);
  send(text);
}

async function removeFrom(turn) {
  if (running.has(current.id)) return;
  if (!(await confirmed("Delete this message and everything after it?", "Delete"))) return;
  cutFrom(turn);
  if (current.turns.length) await save(current);
  else await store.remove(current.id);
  conversations = conversations.filter(({ turns }) => turns.length);
  show();
  composer.focus();
}

function cutFrom(turn) {
  current.turns.splice(current.turns.indexOf(turn));
}

/** Request a response to the last turn of a conversation, which may be closed and reopened meanwhile. */
async function answer(conversation) {
  if (running.has(conversation.id)) return;
  const turn = beginAnswer(conversation);
  const answering = new Answering(turn, () => {
    if (conversation === current) transcript.grow(turn);
    if (performance.now() - saved > SAVE_EVERY_MS) {
      saved = performance.now();
      put(conversation);
    }
  });
  let saved = performance.now();
  running.set(conversation.id, answering);
  if (conversation === current) show();
  composer.focus();
  announce("The answer begins.");
  save(conversation);
  const error = await answering.run(requestBody(conversation));
  running.delete(conversation.id);
  const isKept = conversations.includes(conversation);
  if (isKept) await put(conversation);
  if (conversation === current) {
    transcript.end(turn);
    announce(error ? "" : `The answer: ${turn.content}`); // the problem itself is an alert
  }
  showAround();
  if (error?.status === 401 && (await askForKey())) answer(conversation);
}

// --- the server --------------------------------------------------------------------------------------------------

async function askForKey() {
  const hint = { type: "password", autocomplete: "off", spellcheck: false };
  const given = await asked("API key, kept until this tab is closed", key.get(), "Use this key", hint);
  if (given === null) return false;
  key.set(given.trim());
  await loadModels();
  return true;
}

async function loadModels() {
  let names;
  try {
    names = await models();
  } catch (error) {
    if (error.status === 401 && !key.get()) await askForKey();
    else notice(inWords(error));
    return;
  }
  notice("");
  byId("model").replaceChildren(...names.map((name) => make("option", { value: name, textContent: name })));
  showModel();
}

function showModel() {
  const choice = byId("model");
  if (![...choice.options].some(({ value }) => value === current.model)) current.model = choice.options[0]?.value ?? "";
  choice.value = current.model;
  choice.disabled = !choice.options.length;
}

// --- the parts' events -------------------------------------------------------------------------------------------

function showView() {
  const isMetrics = location.hash === "#metrics";
  byId("chat").hidden = isMetrics;
  byId("metrics").hidden = !isMetrics;
  byId("to-chat").ariaCurrent = isMetrics ? null : "page";
  byId("to-metrics").ariaCurrent = isMetrics ? "page" : null;
  if (isMetrics) metricsView.start();
  else metricsView.stop();
}

composer.listen({ send, stop: () => running.get(current.id)?.stop() });
list.listen(openNew);
byId("rename").onclick = rename;
byId("export").onclick = exportIt;
byId("delete").onclick = removeConversation;
byId("settings").onclick = changeSettings;
byId("key").onclick = askForKey;
byId("notice").querySelector("button").onclick = () => notice("");
byId("model").onchange = () => {
  current.model = byId("model").value;
  if (current.turns.length) put(current);
};
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault(); // the URL's fragment selects the view
  byId(byId("metrics").hidden ? "prompt" : "metrics").focus();
};
addEventListener("hashchange", showView);
addEventListener("pagehide", () => {
  for (const id of running.keys()) put(conversations.find((each) => each.id === id));
});

showView();
show();
composer.focus();
await loadModels();
if (!store.keeps) notice("This browser keeps nothing for this page: conversations end with it.");

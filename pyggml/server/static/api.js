// The server's API. URLs are relative, so that the page works wherever the server is mounted.

import { eventData } from "./sse.js";

const KEY = "pyggml.key";

/** A failed request: `status` is 0 without a response; `cut` is true if the response was interrupted. */
export class ApiError extends Error {
  constructor(message, { status = 0, retryAfter = null, cut = false } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
    this.cut = cut;
  }
}

/** The API key, which the browser deletes when the tab is closed. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** Names of the models and their adapters, without aliases. */
export async function models() {
  const answer = await request("v1/models");
  const isAlias = (model) => model.id !== model.root && !model.id.startsWith(`${model.root}:`);
  return (await answer.json()).data.filter((model) => !isAlias(model)).map((model) => model.id);
}

/** Metrics in Prometheus' text format. */
export async function metrics(signal) {
  return await (await request("metrics", { signal })).text();
}

/** The chunks of a response, up to the server's end marker. Throws if the response is interrupted. */
export async function* chat(body, signal) {
  const answer = await request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  let isDone = false;
  try {
    for await (const data of eventData(answer.body)) {
      // Read to the end: otherwise the server sees a client disconnect.
      isDone ||= data === "[DONE]";
      if (isDone) continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message ?? String(chunk.error), { status: 500, cut: true });
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ApiError || signal.aborted) throw error;
  }
  if (!isDone) throw new ApiError("", { cut: true });
}

async function request(path, options = {}) {
  const headers = { ...options.headers, ...(key.get() && { Authorization: `Bearer ${key.get()}` }) };
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), { ...options, headers });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(error.message);
  }
  if (answer.ok) return answer;
  const retryAfter = Number(answer.headers.get("Retry-After")) || null;
  throw new ApiError(await said(answer), { status: answer.status, retryAfter });
}

/** The server's error message. A proxy's errors may have another format. */
async function said(answer) {
  try {
    return (await answer.json()).error.message ?? "";
  } catch {
    return "";
  }
}

// The server's API. Addresses are relative, so that the page works wherever the server is mounted.

import { eventData } from "./sse.js";

const KEY = "pyggml.key";

/** A request that failed: `status` is 0 if no answer came, `cut` says that an answer broke off. */
export class ApiError extends Error {
  constructor(message, { status = 0, retryAfter = null, cut = false } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
    this.cut = cut;
  }
}

/** The key, which the browser forgets when the tab is closed. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** The names of the models. */
export async function models() {
  const answer = await request("v1/models");
  return (await answer.json()).data.map((model) => model.id);
}

/** The metrics, as Prometheus reads them. */
export async function metrics(signal) {
  return await (await request("metrics", { signal })).text();
}

/** The chunks of an answer, up to the end that the server announces. Throws if it breaks off. */
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
      // The rest is read, too: who leaves before the end has broken off to the server.
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

/** What the server says about a failure. A proxy in between may say it in another form than the API's. */
async function said(answer) {
  try {
    return (await answer.json()).error.message ?? "";
  } catch {
    return "";
  }
}

// Error messages, and formats of numbers.

const BY_STATUS = {
  400: "The server refuses this request:",
  401: "The server asks for an API key: none was sent, or a wrong one.",
  403: "The server does not allow this.",
  404: "The server does not have this model. Choose another at the top.",
  413: "The conversation is too long for the server. Begin a new one, or shorten a message.",
  429: "The server is busy.",
  500: "An error occurred in the server; see its log.",
  502: "The server behind this address does not answer.",
  503: "The server cannot answer now.",
  504: "The server took too long.",
};

/** One or two sentences for users, ending with the server's message. */
export function inWords(error) {
  if (error.cut && error.status) return `The server could not finish the answer. ${sentence(error.message)}`;
  if (error.cut) return "The connection was lost in the middle of the answer. What came is kept.";
  if (!error.status) return "The server cannot be reached. Is it running?";
  const known = BY_STATUS[error.status] ?? `The server refuses this (status ${error.status}).`;
  const wait = error.retryAfter ? `Try again in ${error.retryAfter} s.` : "";
  return [known, error.message && sentence(error.message), wait].filter(Boolean).join(" ");
}

/** The reason for the end of a response, if it is not obvious. */
export function endInWords(reason) {
  return { length: "cut at its limit of tokens", tool_calls: "asks for a tool", stopped: "stopped" }[reason] ?? "";
}

function sentence(text) {
  const isName = /^\S*[:._[]/.test(text); // starts with a field's name, which is not capitalized
  const first = isName ? text : text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

/** Round to three digits. */
export function short(number) {
  return number >= 100 ? number.toFixed(0) : String(Number(number.toPrecision(3)));
}

export const seconds = (value) => (value < 1 ? `${short(value * 1000)} ms` : `${short(value)} s`);

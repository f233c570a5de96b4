// Parser of server-sent events in a response body: EventSource cannot send a request body.

/** The data of each event. Comments, which keep a silent connection open, are skipped. */
export async function* eventData(body) {
  let data = [];
  for await (const line of lines(body)) {
    if (line === "") {
      if (data.length) yield data.join("\n");
      data = [];
    } else if (line.startsWith("data:")) {
      data.push(line.slice(line[5] === " " ? 6 : 5));
    }
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      // A line may end in CR, LF or both. A CR at the end of a chunk may have its LF in the next one.
      const pieces = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = pieces.pop();
      yield* pieces;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

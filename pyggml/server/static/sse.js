// Reads server-sent events from the body of an answer: EventSource cannot send a body.

/** The data of each event. A comment, which keeps a silent connection open, is none. */
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
      // A line may end in CR, LF or both. A CR at the end of a piece may have its LF in the next one.
      const pieces = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = pieces.pop();
      yield* pieces;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

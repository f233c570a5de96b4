// The streaming of one response into the last turn of a conversation.

import { chat } from "./api.js";
import { inWords } from "./words.js";

export class Answering {
  #aborting = new AbortController();
  #clock = { began: 0, first: 0, last: 0, pieces: 0 };
  #usage = null;
  #timings = null;

  /** `onChange` is called whenever the turn changes. */
  constructor(turn, onChange) {
    this.turn = turn;
    this.onChange = onChange;
  }

  /** Run until the response ends. Return the error that ended it, or null. */
  async run(body) {
    let failed = null;
    this.#clock.began = performance.now();
    try {
      for await (const chunk of chat(body, this.#aborting.signal)) this.#take(chunk);
      this.turn.end ||= "stop";
    } catch (error) {
      if (this.#aborting.signal.aborted) this.turn.end = "stopped";
      else this.turn.problem = inWords((failed = error));
    }
    this.turn.figures = this.#figures();
    return failed;
  }

  stop() {
    this.#aborting.abort();
  }

  #take(chunk) {
    this.#usage = chunk.usage ?? this.#usage;
    this.#timings = chunk.timings ?? this.#timings; // the engine's own, without network time
    const choice = chunk.choices?.find(({ index }) => index === 0); // a request may have several choices
    if (!choice) return;
    const { content, reasoning_content: reasoning } = choice.delta;
    if (content || reasoning) {
      this.#clock.last = performance.now();
      this.#clock.first ||= this.#clock.last;
      this.#clock.pieces += 1;
      this.turn.content += content ?? "";
      this.turn.reasoning += reasoning ?? "";
      this.turn.figures = this.#figures();
    }
    this.turn.end = choice.finish_reason ?? this.turn.end;
    this.onChange();
  }

  /** Null before the first chunk. Until the server sends the usage, each chunk counts as one token. */
  #figures() {
    const { began, first, last, pieces } = this.#clock;
    if (!pieces) return null;
    const tokens = this.#usage?.completion_tokens ?? pieces;
    const seconds = (last - first) / 1000;
    return {
      tokens,
      isCounted: this.#usage !== null,
      firstSeconds: (first - began) / 1000,
      perSecond: this.#timings?.predicted_per_second || (seconds > 0 ? (tokens - 1) / seconds : null),
    };
  }
}

// The view of the server's metrics: read every two seconds while it is looked at.

import { metrics } from "./api.js";
import { make } from "./dom.js";
import { Plot } from "./plot.js";
import { Reading } from "./prometheus.js";
import { inWords } from "./words.js";

const EVERY_MS = 2000;
const SPAN_SECONDS = 300;

const rounded = (unit) => (value) => `${value >= 100 ? value.toFixed(0) : Number(value.toPrecision(3))}${unit}`;
const seconds = (value) => (value < 1 ? rounded(" ms")(value * 1000) : rounded(" s")(value));
const percent = (value) => `${(100 * value).toFixed(0)} %`;

const FIRST = "pyggml_time_to_first_token_seconds";
const NEXT = "pyggml_inter_token_seconds";

// Title, values in words, and by name of each line: its value from a reading and the one before.
const PLOTS = [
  ["Tokens per second", rounded(""), {
    generated: (now, before) => now.rate("pyggml_generated_tokens_total", before),
    "of prompts": (now, before) => now.rate("pyggml_prompt_tokens_total", before),
  }],
  ["Requests", rounded(""), {
    running: (now) => now.sum("pyggml_requests_running"),
    queued: (now) => now.sum("pyggml_requests_queued"),
  }],
  ["Time to the first token", seconds, {
    median: (now, before) => now.quantile(FIRST, 0.5, before),
    "95 of 100 below": (now, before) => now.quantile(FIRST, 0.95, before),
  }],
  ["Time between tokens", seconds, {
    median: (now, before) => now.quantile(NEXT, 0.5, before),
    "95 of 100 below": (now, before) => now.quantile(NEXT, 0.95, before),
  }],
  ["Cache in use", percent, { "": (now) => now.sum("pyggml_cache_use_ratio") }],
];

export class MetricsView {
  #plots = PLOTS.map(([title, shown, lines]) => new Plot(title, Object.keys(lines), shown, SPAN_SECONDS));
  #points = PLOTS.map(() => []);
  #before = null;
  #timer = 0;
  #fetching = null;

  constructor(root) {
    this.problem = make("p", { className: "problem", role: "status", hidden: true });
    const plots = make("div", { className: "plots" }, ...this.#plots.map((plot) => plot.element));
    root.append(make("h2", { textContent: "Metrics" }), this.problem, plots);
    // A tab in the background asks for nothing.
    document.addEventListener("visibilitychange", () => this.#fetching && this.start());
  }

  start() {
    this.stop();
    this.#fetching = new AbortController();
    if (!document.hidden) this.#read(this.#fetching.signal);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#fetching?.abort();
    this.#fetching = null;
  }

  async #read(signal) {
    let words = "";
    try {
      const text = await metrics(signal);
      this.#show(new Reading(text, performance.now() / 1000));
    } catch (error) {
      if (signal.aborted) return;
      words = error.status === 404 ? "This server offers no metrics." : inWords(error);
    }
    this.problem.hidden = !words;
    if (this.problem.textContent !== words) this.problem.textContent = words;
    this.#timer = setTimeout(() => this.#read(signal), EVERY_MS);
  }

  #show(now) {
    const before = this.#before ?? now;
    this.#before = now;
    PLOTS.forEach(([, , lines], index) => {
      const values = Object.values(lines).map((value) => value(now, before));
      const points = [...this.#points[index], [now.seconds, ...values.map((value) => (Number.isFinite(value) ? value : null))]];
      this.#points[index] = points.filter(([at]) => now.seconds - at <= SPAN_SECONDS);
      this.#plots[index].show(this.#points[index], now.seconds);
    });
  }
}

// The metrics view, updated every two seconds while it is visible.

import { metrics } from "./api.js";
import { make } from "./dom.js";
import { Plot } from "./plot.js";
import { Reading } from "./prometheus.js";
import { inWords, seconds, short } from "./words.js";

const EVERY_MS = 2000;
const SPANS_SECONDS = [60, 300];

const percent = (value) => `${(100 * value).toFixed(0)} %`;

// Median and 95th percentile since the previous reading.
const usual = (name) => ({
  median: (now, before) => now.quantile(before, name, 0.5),
  "95th percentile": (now, before) => now.quantile(before, name, 0.95),
});

// Title, format of values, and lines by name, each computed from two consecutive readings.
const PLOTS = [
  ["Tokens per second", short, {
    generated: (now, before) => now.rate(before, "pyggml_engine_tokens_total", 'phase="decode"'),
    "of prompts": (now, before) => now.rate(before, "pyggml_engine_tokens_total", 'phase="prefill"'),
  }],
  ["Answers", short, {
    running: (now) => now.sum("pyggml_generations_running"),
    queued: (now) => now.sum("pyggml_generations_queued"),
  }],
  ["Cache in use", percent, {
    "by answers": (now) => now.share("pyggml_context_cells", 'state="running"'),
    "kept for later": (now) => now.share("pyggml_context_cells", 'state="cached"'),
  }],
  ["Time to the first token", seconds, usual("pyggml_time_to_first_token_seconds")],
  ["Time between tokens", seconds, usual("pyggml_inter_token_latency_seconds")],
  ["Time in the queue", seconds, usual("pyggml_queue_wait_seconds")],
];

export class MetricsView {
  #plots = PLOTS.map(([title, shown, lines]) => new Plot(title, Object.keys(lines), shown));
  #points = PLOTS.map(() => []);
  #before = null;
  #timer = 0;
  #fetching = null;

  constructor(root) {
    this.problem = make("p", { className: "problem", role: "status", hidden: true });
    const plots = make("div", { className: "plots" }, ...this.#plots.map((plot) => plot.element));
    root.append(make("h2", { textContent: "Metrics" }), this.problem, plots);
    // A background tab sends no requests.
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
      const finite = values.map((value) => (Number.isFinite(value) ? value : null));
      const points = [...this.#points[index], [now.seconds, ...finite]];
      this.#points[index] = points.filter(([at]) => now.seconds - at <= SPANS_SECONDS.at(-1));
      const age = now.seconds - this.#points[index][0][0];
      const span = SPANS_SECONDS.find((each) => age <= each);
      this.#plots[index].show(this.#points[index], now.seconds, span);
    });
  }
}

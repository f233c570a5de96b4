// Reads Prometheus' text format, and what follows from two readings of the same server.

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** What the server said at one time. */
export class Reading {
  #samples = new Map();

  constructor(text, seconds) {
    this.seconds = seconds;
    for (const line of text.split("\n")) {
      const found = LINE.exec(line); // comments and empty lines are none
      if (found) this.#add(found[1], found[2] ?? "", number(found[3]));
    }
  }

  /** The sum over all labels; null if the server has no such metric. */
  sum(name) {
    return this.#samples.get(name)?.reduce((total, { value }) => total + value, 0) ?? null;
  }

  /** How fast a counter has grown since an earlier reading, per second. */
  rate(name, before) {
    const [now, then] = [this.sum(name), before.sum(name)];
    // A counter that has shrunk began again, with the server.
    if (now === null || then === null || now < then) return null;
    return (now - then) / (this.seconds - before.seconds);
  }

  /** Below what a share of a histogram's values lie that came since an earlier reading; null if none came. */
  quantile(name, share, before) {
    const then = before.#buckets(name);
    const grown = [...this.#buckets(name)].map(([bound, count]) => [bound, count - (then.get(bound) ?? 0)]);
    grown.sort(([a], [b]) => a - b);
    const total = grown.at(-1)?.[1] ?? 0;
    if (total <= 0) return null;
    const index = grown.findIndex(([, count]) => count >= share * total);
    const [low, below] = index ? grown[index - 1] : [0, 0];
    const [high, count] = grown[index];
    if (high === Infinity) return low;
    return low + ((high - low) * (share * total - below)) / (count - below);
  }

  #add(name, labels, value) {
    if (!this.#samples.has(name)) this.#samples.set(name, []);
    this.#samples.get(name).push({ labels, value });
  }

  #buckets(name) {
    const counts = new Map();
    for (const { labels, value } of this.#samples.get(`${name}_bucket`) ?? []) {
      const bound = [...labels.matchAll(LABEL)].find(([, label]) => label === "le")?.[2];
      counts.set(number(bound), (counts.get(number(bound)) ?? 0) + value);
    }
    return counts;
  }
}

const number = (text) => (text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text));

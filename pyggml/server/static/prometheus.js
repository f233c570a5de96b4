// Parser of Prometheus' text format, and rates from two readings of the same server.

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** The metrics at one time. */
export class Reading {
  #samples = new Map();

  constructor(text, seconds) {
    this.seconds = seconds;
    for (const line of text.split("\n")) {
      const found = LINE.exec(line); // comments and empty lines do not match
      if (found) this.#add(found[1], found[2] ?? "", number(found[3]));
    }
  }

  /** The sum of all series, or of those with a label such as `phase="decode"`; null if there are none. */
  sum(name, label = "") {
    const found = this.#samples.get(name)?.filter(({ labels }) => labels.includes(label)) ?? [];
    return found.length ? found.reduce((total, { value }) => total + value, 0) : null;
  }

  /** Increase of a counter per second since an earlier reading. */
  rate(before, name, label) {
    const [now, then] = [this.sum(name, label), before.sum(name, label)];
    // A counter that has decreased was reset when its model was reloaded.
    if (now === null || then === null || now < then) return null;
    return (now - then) / (this.seconds - before.seconds);
  }

  /** Share of the series with a label in a metric. */
  share(name, label) {
    const [part, whole] = [this.sum(name, label), this.sum(name)];
    return part === null || !whole ? null : part / whole;
  }

  /** Quantile of a histogram's values since an earlier reading; null if there are none. */
  quantile(before, name, share) {
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

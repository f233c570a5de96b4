// A plot of the last minutes: lines over time, redrawn on each update.

import { draw, make } from "./dom.js";

const WIDTH = 300;
const HEIGHT = 100;

export class Plot {
  /** `names`: of the lines. `shown(value)`: formats a value. */
  constructor(title, names, shown) {
    this.title = title;
    this.names = names;
    this.shown = shown;
    this.values = names.map(() => make("output"));
    const legend = names.map((name, index) =>
      make("li", {}, sample(index), `${name} `, this.values[index]));
    this.top = make("span", { className: "top" });
    this.lines = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.begin = make("span");
    const axis = make("div", { className: "axis" }, this.begin, make("span", { textContent: "now" }));
    this.element = make("figure", {}, make("figcaption", { textContent: title }), make("ul", {}, ...legend));
    this.element.append(make("div", { className: "field" }, this.top, this.lines), axis);
  }

  /** `points`: [seconds, value of each line], the oldest first; null: no value. */
  show(points, nowSeconds, spanSeconds) {
    const values = points.flatMap(([, ...each]) => each).filter((value) => value !== null);
    const most = Math.max(...values, 0);
    const top = roundUp(most);
    const x = (seconds) => WIDTH * (1 - (nowSeconds - seconds) / spanSeconds);
    const y = (value) => HEIGHT * (1 - value / top);
    const line = (index) => {
      let pen = "M";
      const steps = points.map(([seconds, ...each]) => {
        if (each[index] === null) return (pen = "M") && "";
        const step = `${pen}${x(seconds).toFixed(1)} ${y(each[index]).toFixed(1)}`;
        pen = "L";
        return step;
      });
      return draw("path", { class: `line-${index}`, d: steps.join("") });
    };
    this.lines.replaceChildren(...this.names.map((_, index) => line(index)));
    this.begin.textContent = `${spanSeconds / 60} min ago`;
    this.top.textContent = values.length ? this.shown(top) : "no values yet";
    const latest = this.names.map((_, index) => points.at(-1)?.[index + 1] ?? null);
    const words = latest.map((value) => (value === null ? "–" : this.shown(value)));
    words.forEach((word, index) => (this.values[index].textContent = word));
    const now = this.names.map((name, index) => `${name} ${words[index]}`).join(", ");
    this.lines.setAttribute("aria-label", `${this.title}: now ${now}; at most ${this.shown(most)}`);
  }
}

/** The next of 1, 2, 5, 10, 20, 50 … */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

/** A line segment for the legend. */
function sample(index) {
  const line = draw("svg", { viewBox: "0 0 20 10", class: "sample", "aria-hidden": "true" });
  line.append(draw("path", { class: `line-${index}`, d: "M0 5L20 5" }));
  return line;
}

// Rendering of a conversation's turns.

import { button, copyButton, make } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { endInWords, seconds, short } from "./words.js";

// Distance from the end within which the view follows new text.
const NEAR_PX = 60;

export class Transcript {
  #views = new Map();
  #frame = 0;

  /** `actions`: `edit(turn, text)`, `remove(turn)` and `again()`. */
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
  }

  /** Render a conversation. `isAnswering`: its last turn is still streaming. */
  show(conversation, isAnswering) {
    this.#unschedule();
    this.#views.clear();
    this.root.ariaBusy = String(isAnswering);
    const { turns } = conversation;
    this.root.replaceChildren(
      ...turns.map((turn, index) => {
        const view = turn.role === "user" ? new Question(turn, this.actions) : new Answer(turn, this.actions);
        this.#views.set(turn, view);
        view.show({ isLast: index === turns.length - 1, isAnswering: isAnswering && index === turns.length - 1 });
        return view.element;
      }),
    );
    if (!turns.length) this.root.append(make("p", { className: "empty", textContent: "Ask something." }));
    this.root.scrollTop = this.root.scrollHeight;
  }

  /** Update a streaming turn, at most once per frame. */
  grow(turn) {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#update(turn, true);
    });
  }

  /** Update a turn whose response has ended. */
  end(turn) {
    this.#unschedule();
    this.root.ariaBusy = "false";
    this.#update(turn, false);
  }

  #unschedule() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
  }

  #update(turn, isAnswering) {
    const { root } = this;
    const isNearEnd = root.scrollHeight - root.scrollTop - root.clientHeight < NEAR_PX;
    this.#views.get(turn)?.show({ isLast: true, isAnswering });
    if (isNearEnd) root.scrollTop = root.scrollHeight;
  }
}

class Question {
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.element = make("article", { className: "question", "aria-label": "You" });
  }

  show() {
    const { turn, actions } = this;
    const edit = button("Edit", () => this.#edit(), { "aria-label": "Edit, and ask again" });
    const remove = button("Delete", () => actions.remove(turn), { "aria-label": "Delete this and what follows" });
    this.element.replaceChildren(
      make("p", { className: "plain", textContent: turn.content }),
      make("div", { className: "foot" }, copyButton(() => turn.content, "the message"), edit, remove),
    );
  }

  #edit() {
    const text = make("textarea", { value: this.turn.content, rows: 4, "aria-label": "Message" });
    const back = () => {
      this.show();
      this.element.querySelector(".foot button:nth-child(2)").focus();
    };
    const save = make("button", { type: "submit", className: "main", textContent: "Ask again" });
    const row = make("div", { className: "row" }, save, button("Cancel", back));
    const form = make("form", {}, text, row);
    form.onsubmit = (event) => {
      event.preventDefault();
      if (text.value.trim()) this.actions.edit(this.turn, text.value);
    };
    form.onkeydown = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      back();
    };
    this.element.replaceChildren(form);
    text.focus();
  }
}

class Answer {
  constructor(turn, actions) {
    this.turn = turn;
    this.reasoning = new MarkdownView();
    this.content = new MarkdownView();
    this.folded = make("details", { className: "reasoning" });
    this.summary = make("summary");
    this.folded.append(this.summary, this.reasoning.element);
    this.problem = make("div", { className: "problem", role: "alert" });
    this.retry = button("Try again", () => actions.again());
    this.figures = make("span", { className: "figures" });
    this.again = button("Regenerate", () => actions.again());
    this.copy = copyButton(() => turn.content, "the answer");
    const foot = make("div", { className: "foot" }, this.copy, this.again, this.figures);
    const label = `Answer of ${turn.model || "the model"}`;
    const name = make("div", { className: "name", textContent: turn.model });
    const parts = [name, this.folded, this.content.element, this.problem, foot];
    this.element = make("article", { className: "answer", "aria-label": label }, ...parts);
  }

  show({ isLast, isAnswering }) {
    const { turn } = this;
    this.element.ariaBusy = String(isAnswering);
    this.folded.hidden = !turn.reasoning;
    this.summary.textContent = isAnswering && !turn.content ? "Reasoning …" : "Reasoning";
    this.reasoning.show(turn.reasoning);
    this.content.show(turn.content);
    this.element.classList.toggle("waiting", isAnswering && !turn.content && !turn.reasoning);
    this.copy.hidden = isAnswering || !turn.content;
    this.again.hidden = isAnswering || !isLast || Boolean(turn.problem);
    this.figures.textContent = figuresInWords(turn);
    this.#showProblem(isAnswering, isLast);
  }

  #showProblem(isAnswering, isLast) {
    const { turn } = this;
    // No end and no error: the page was closed, or the response is streaming in another tab.
    const words = turn.problem || (turn.end || isAnswering ? "" : "This answer has not ended on this page.");
    this.problem.hidden = !words;
    if (words) this.problem.replaceChildren(make("span", { textContent: words }), ...(isLast ? [this.retry] : []));
  }
}

function figuresInWords({ figures, end }) {
  const parts = [];
  if (figures) {
    const about = figures.isCounted ? "" : "about ";
    parts.push(`${about}${figures.tokens} ${figures.tokens === 1 ? "token" : "tokens"}`);
    if (figures.perSecond !== null) parts.push(`${short(figures.perSecond)} tokens/s`);
    parts.push(`first after ${seconds(figures.firstSeconds)}`);
  }
  return [...parts, endInWords(end)].filter(Boolean).join(" · ");
}

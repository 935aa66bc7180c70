// Questions to the kernel, and where its answers stand: below everything, as wide as the view.

import { html } from "./dom";
import { arm, type Target } from "./elements";
import type { Connection } from "./connection";
import type { Message, Model, Question } from "./protocol";

const PATIENCE = 4000;
const SILENCE = "No answer: the kernel is busy, or this page has none. What a kernel holds can be looked at only while it runs.";

export class Reply {
  readonly element = html("div", { class: "klt-answer", "aria-live": "polite" });
  private asked = 0;
  private waiting: ReturnType<typeof setTimeout> | undefined;
  /** Where the next answer goes. */
  private place: HTMLElement | undefined;
  /** Several views of one tape hear each other's answers. */
  private readonly prefix = Math.random().toString(36).slice(2);

  constructor(
    private model: Model,
    private connection: Connection,
    private go: (to: Target) => void,
  ) {
    model.on("msg:custom", this.answered);
  }

  close(): void {
    clearTimeout(this.waiting);
    this.model.off("msg:custom", this.answered);
  }

  clear(): void {
    this.asked++;
    clearTimeout(this.waiting);
    this.element.replaceChildren();
  }

  /** Ask, in place of what was answered before, or `below` it. */
  ask(question: Question, title: string, below = false): void {
    this.asked++;
    const first = this.element.querySelector(".klt-part");
    const place = html("div", { class: "klt-part" }, html("p", { class: "klt-quiet" }, `asking for ${title} …`));
    const close = html(
      "button",
      { type: "button", class: "klt-button klt-close", "aria-label": "close the answer", click: () => this.clear() },
      "✕",
    );
    this.element.replaceChildren(close, ...(below && first ? [first] : []), place);
    this.place = place;
    clearTimeout(this.waiting);
    const silent = () => place.replaceChildren(html("p", { class: "klt-quiet" }, SILENCE));
    if (this.connection.send({ op: "ask", id: this.id, ...question })) this.waiting = setTimeout(silent, PATIENCE);
    else silent();
  }

  private get id(): string {
    return `${this.prefix}-${this.asked}`;
  }

  /** The answer is a view made by kernelab, in which everything from the notebook is escaped. */
  private answered = (message: Message): void => {
    if (message.op !== "answer" || message.id !== this.id || !this.place) return;
    clearTimeout(this.waiting);
    this.place.innerHTML = message.html ?? "";
    arm(this.place, this.go);
    this.place.scrollIntoView?.({ block: "nearest" });
  };
}

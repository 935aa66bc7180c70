// What is known of the picked record and array, and the questions that a reader can ask about them.

import type { Connection } from "./connection";
import { html } from "./dom";
import type { Target } from "./elements";
import { factsOfMemory, factsOfRecord, threads } from "./facts";
import type { Model } from "./protocol";
import { Reply } from "./reply";
import type { Selection } from "./selection";
import type { Store } from "./store";

export class Details {
  readonly element: HTMLElement;
  private readonly answers: Reply;
  private facts = html("div", { class: "klt-facts" });
  private questions = html("div", { class: "klt-questions" });
  private drawnFor = "";
  private askedFor = "";
  private named = 0;

  constructor(
    private store: Store,
    private selection: Selection,
    model: Model,
    connection: Connection,
    private reveal: (record: number) => void,
  ) {
    this.element = html("div", { class: "klt-details", role: "region", "aria-label": "what is picked" }, this.facts, this.questions);
    this.answers = new Reply(model, connection, (to) => this.go(to));
    selection.listen(() => {
      this.answers.clear();
      this.update();
    });
  }

  get reply(): HTMLElement {
    return this.answers.element;
  }

  close(): void {
    this.answers.close();
  }

  update(): void {
    const { store } = this,
      record = this.record,
      memory = this.memory;
    const picked = [record, memory, store.epoch, memory !== null && store.arraysOf(memory)[0]].join();
    const state = [picked, record !== null && store.data.times[record], memory !== null && store.writesOf(memory)].join();
    if (state !== this.drawnFor || this.named !== store.data.names.length) this.draw(record, memory);
    // Somebody may be typing into these.
    if (picked !== this.askedFor) this.questions.replaceChildren(...this.questionsOf(record, memory));
    [this.drawnFor, this.askedFor, this.named] = [state, picked, store.data.names.length];
  }

  private draw(record: number | null, memory: number | null): void {
    const parts = [
      ...(record === null ? [] : factsOfRecord(this.store, record)),
      ...(memory === null ? [] : factsOfMemory(this.store, memory)),
    ];
    if (!parts.length) parts.push(html("p", { class: "klt-quiet" }, "Pick a launch or an array to see what is known of it."));
    this.facts.replaceChildren(...parts);
  }

  private get record(): number | null {
    const { record } = this.selection;
    return record !== null && record < this.store.length ? record : null;
  }

  private get memory(): number | null {
    const { memory } = this.selection;
    return memory !== null && memory < this.store.data.memories.length ? memory : null;
  }

  /** What Enter does: ask for the array that is picked, else for the launch. */
  more(): void {
    const { record, memory } = this;
    if (memory !== null && this.store.arraysOf(memory).length) this.askArray(memory);
    else if (record !== null && this.store.step(record).kind === "launch") this.askRecord(record);
  }

  private questionsOf(record: number | null, memory: number | null): HTMLElement[] {
    const step = record === null ? null : this.store.step(record);
    return [
      ...(record !== null && step?.kind === "launch"
        ? [button("kernel and arguments", () => this.askRecord(record)), this.tracer(record, threads(step.grid ?? []))]
        : []),
      ...(memory !== null && this.store.arraysOf(memory).length ? this.questionsOfMemory(memory) : []),
    ];
  }

  private questionsOfMemory(memory: number): HTMLElement[] {
    const has = this.store.hasGradient(memory);
    return [button(has ? "values and gradient" : "values", () => this.askArray(memory)), ...(has ? [this.blamer(memory)] : [])];
  }

  /** One thread of a launch, by its number in the grid. */
  private tracer(record: number, most: number): HTMLElement {
    const input = html("input", { type: "number", min: 0, max: most - 1, value: 0 });
    return form("thread ", input, "trace", () => this.askThread(record, Number(input.value)));
  }

  /** One element of a gradient, by its indices. */
  private blamer(memory: number): HTMLElement {
    const rank = this.store.shape(this.store.firstArray(memory)).length;
    const input = html("input", { type: "text", inputmode: "numeric", value: Array(rank).fill(0).join(", ") });
    return form("gradient of element ", input, "who added to it?", () =>
      this.askElement(memory, (input.value.match(/-?\d+/g) ?? []).map(Number)),
    );
  }

  /** Sweep on copies: the steps come as news. */
  measure(): void {
    this.answers.ask({ ask: "measure" }, "a backward pass on copies");
  }

  private askArray(memory: number): void {
    this.answers.ask({ ask: "array", number: this.store.firstArray(memory) }, "the values");
  }

  private askRecord(record: number): void {
    this.answers.ask({ ask: "record", number: record }, "the kernel and its arguments");
  }

  private askThread(record: number, thread: number): void {
    this.answers.ask({ ask: "thread", number: record, thread }, `the run of thread ${thread}`);
  }

  private askElement(memory: number, index: number[]): void {
    this.answers.ask(
      { ask: "element", number: this.store.firstArray(memory), index },
      `what added to the gradient of element [${index.join(", ")}]`,
      true,
    );
  }

  /** Where a click into an answer leads. */
  private go(to: Target): void {
    if (to.to === "element") {
      if (this.memory !== null) this.askElement(this.memory, to.index);
      return;
    }
    this.reveal(to.record);
    if (to.to === "thread") this.askThread(to.record, position(to.place, this.store.step(to.record).grid ?? []));
  }
}

/** The number of a thread in its grid, the last dimension fastest. */
export function position(place: number[], grid: number[]): number {
  return place.reduce((number, index, k) => number * (grid[k] ?? 1) + index, 0);
}

function button(title: string, click: () => void): HTMLElement {
  return html("button", { type: "button", class: "klt-button", click }, title);
}

/** A field with a button; Enter in the field presses it. */
function form(label: string, input: HTMLInputElement, title: string, ask: () => void): HTMLElement {
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") ask();
  });
  return html("div", { class: "klt-question" }, html("label", {}, label, input), " ", button(title, ask));
}

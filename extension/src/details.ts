// What is known of the picked record and array, and what the kernel answers when asked for more.

import { bytes, count, duration, html } from "./dom";
import type { Model } from "./protocol";
import type { Selection } from "./selection";
import type { Store } from "./store";

const PATIENCE = 4000;
const SILENCE = "No answer: the kernel is busy, or this page has none. What a kernel holds can be looked at only while it runs.";

export class Details {
  readonly element = html("div", { class: "klt-details", "aria-live": "off" });
  private facts = html("div", { class: "klt-facts" });
  /** Stands below everything, as wide as the view. */
  readonly reply = html("div", { class: "klt-answer", "aria-live": "polite" });
  private asked = 0;
  private drawnFor = "";
  private named: Record<string, string> = {};
  private readonly prefix = Math.random().toString(36).slice(2);

  constructor(private store: Store, private selection: Selection, private model: Model) {
    this.element.append(this.facts);
    selection.listen(() => {
      this.asked++;
      this.reply.replaceChildren();
      this.update();
    });
    model.on("msg:custom", this.answered);
  }

  close(): void {
    this.model.off("msg:custom", this.answered);
  }

  update(): void {
    const { record, memory } = this.selection;
    const state = [record, memory, this.store.epoch, record !== null && this.store.data.times[record], memory !== null && this.store.length];
    if (this.drawnFor === state.join() && this.named === this.store.data.names) return;
    this.drawnFor = state.join();
    this.named = this.store.data.names;
    const parts: HTMLElement[] = [];
    if (record !== null && record < this.store.length) parts.push(...this.record(record));
    if (memory !== null && memory < this.store.data.memories.length) parts.push(...this.memory(memory));
    if (!parts.length) parts.push(html("p", { class: "klt-quiet" }, "Pick a launch or an array for what is known of it."));
    this.facts.replaceChildren(...parts);
  }

  /** What Enter does: ask for the array that is picked, else for the launch. */
  more(): void {
    const { record, memory } = this.selection;
    if (memory !== null) this.ask("array", this.store.firstArray(memory), "values");
    else if (record !== null) this.ask("record", record, "kernel");
  }

  private record(record: number): HTMLElement[] {
    const { store } = this, step = store.step(record);
    const side = (arrays: [string, number][], after: boolean) => arrays.map(([parameter, array]) => {
      const memory = store.memoryOf(array);
      const version = store.versionAfter(memory, after ? record : record - 1);
      return html("li", {}, html("code", {}, parameter && parameter !== store.name(memory) ? `${parameter} = ${store.name(memory)}` : store.name(memory)),
        html("span", { class: "klt-quiet" }, ` ${store.layout(array)}, v${version}${store.hasGradient(memory) ? ", ∇" : ""}`));
    });
    const grid = step.grid ?? [], threads = grid.reduce((a, b) => a * b, 1);
    const moved = (arrays: [string, number][]) => new Set(arrays.map(([, array]) => store.memoryOf(array)));
    const size = (memories: Set<number>) => [...memories].reduce((sum, memory) => sum + store.data.memories[memory]![1], 0);
    const facts = [
      ...(step.grid ? [["grid", `${grid.join(" × ")} (${count(threads, "thread")})`], ["device", "cpu"]] : []),
      ["time", duration(store.data.times[record] ?? -1) || "not measured: it ran before the tape was shown"],
      ["memory", `reads from ${bytes(size(moved(step.reads)))}, writes to ${bytes(size(moved(step.writes)))}`],
      ["where", step.place],
      ...store.data.scopes.filter(([, begin, end]) => begin <= record && record < end).map(([name]) => ["scope", name]),
    ];
    return [
      html("h5", {}, html("span", { class: "klt-quiet" }, `${record + 1}  `), html("code", {}, step.title)),
      html("dl", {}, ...facts.flatMap(([name, value]) => [html("dt", {}, name!), html("dd", {}, value!)])),
      ...(step.reads.length ? [html("h6", {}, "reads"), html("ul", {}, ...side(step.reads, false))] : []),
      ...(step.writes.length ? [html("h6", {}, "changes"), html("ul", {}, ...side(step.writes, true))] : []),
      ...(step.kind === "launch" ? [this.button("kernel and arguments", "record", record), this.tracer(record, threads)] : []),
    ];
  }

  private arraysOf(memory: number): number[] {
    return this.store.data.arrays.flatMap(([one], array) => (one === memory ? [array] : []));
  }

  private memory(memory: number): HTMLElement[] {
    const { store } = this, arrays = this.arraysOf(memory);
    const writes = store.versions.reduce((sum, written) => sum + written.filter(([one]) => one === memory).length, 0);
    const known = store.isNamed(memory) ? [] : [["name", "none in the notebook: this is the parameter that took it"]];
    const facts = [...known, ["holds", arrays.slice(0, 4).map((array) => store.layout(array)).join("; ") + (arrays.length > 4 ? `; ${arrays.length - 4} more views` : "")],
      ["memory", bytes(store.data.memories[memory]![1])], ["gradient", store.hasGradient(memory) ? "required" : "not required"],
      ["versions", count(writes, "write") + " on this tape"]];
    return [
      html("h5", {}, html("code", {}, store.name(memory))),
      html("dl", {}, ...facts.flatMap(([name, value]) => [html("dt", {}, name!), html("dd", {}, value!)])),
      ...(arrays.length ? [this.button("values and gradient", "array", arrays[0]!)] : []),
    ];
  }

  /** One thread of a launch, by its number in the grid. */
  private tracer(record: number, threads: number): HTMLElement {
    const ask = () => this.ask("thread", record, `run of thread ${input.value}`, { thread: Number(input.value) });
    const input = html("input", {
      type: "number", min: 0, max: threads - 1, value: 0,
      keydown: (event: KeyboardEvent) => {
        event.stopPropagation();
        if (event.key === "Enter") ask();
      },
    });
    return html("div", {}, html("label", {}, "thread ", input), " ", html("button", { type: "button", class: "klt-button", click: ask }, "trace"));
  }

  private button(title: string, ask: "array" | "record", number: number): HTMLElement {
    return html("button", { type: "button", class: "klt-button", click: () => this.ask(ask, number, title) }, title);
  }

  private ask(ask: "array" | "record" | "thread", number: number, title: string, more: object = {}): void {
    const id = `${this.prefix}-${++this.asked}`;
    this.reply.replaceChildren(html("p", { class: "klt-quiet" }, `asking the kernel for the ${title} …`));
    this.model.send({ op: "ask", id, ask, number, ...more });
    setTimeout(() => {
      if (id === `${this.prefix}-${this.asked}` && !this.reply.dataset.answered) this.reply.replaceChildren(html("p", { class: "klt-quiet" }, SILENCE));
    }, PATIENCE);
    delete this.reply.dataset.answered;
  }

  /** The answer is a view made by kernelab, in which everything from the notebook is escaped. */
  private answered = (message: { op?: string; id?: string; html?: string }): void => {
    if (message.op !== "answer" || message.id !== `${this.prefix}-${this.asked}`) return;
    this.reply.dataset.answered = "yes";
    this.reply.innerHTML = message.html ?? "";
    this.reply.prepend(html("button", { type: "button", class: "klt-button klt-close", "aria-label": "close", click: () => this.reply.replaceChildren() }, "✕"));
  };
}

// The backward pass, step by step: which adjoints each launch changed, how large they are then, and where a
// gradient vanishes or explodes.

import { Course, said } from "./course";
import { html, slider } from "./dom";
import type { Norm, SweepStep } from "./protocol";
import type { Selection } from "./selection";
import type { Store } from "./store";
import { Strip } from "./strip";

/** Milliseconds between two drawings of a pass that goes on. */
const PAUSE = 150;
const NOTHING =
  "No backward pass has been watched yet. Measure one on copies, which changes no gradient, or call tape.backward(...) while this tape is shown: then every step stands here, with the adjoints that it changed.";

export class Sweep {
  readonly element = html("div", { class: "klt-sweep" });
  private at = 0;
  private known: SweepStep[] = [];
  private drawn = 0;
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private course = new Course();
  private strip = new Strip(this.course, (step) => this.go(step));
  private slider = slider({
    min: 0,
    max: 0,
    value: 0,
    "aria-label": "step of the backward pass",
    input: () => this.go(Number(this.slider.value)),
  });
  /** Screen readers announce steps, but not that their number grows. */
  private total = document.createTextNode("");
  private toldNames = "";
  private now = html("div", { class: "klt-now", "aria-live": "polite" });
  private parts = [
    this.strip.element,
    html(
      "div",
      { class: "klt-steps" },
      this.button("◀", "one step towards the loss", -1),
      this.slider,
      this.button("▶", "one step further back", 1),
    ),
    this.now,
  ];

  constructor(
    private store: Store,
    private selection: Selection,
    private measure: () => void,
  ) {}

  update(): void {
    const { sweep } = this.store.data;
    if (!sweep.length) {
      this.known = sweep;
      this.drawn = 0;
      this.element.replaceChildren(
        html("p", { class: "klt-quiet" }, NOTHING),
        html(
          "p",
          {},
          html("button", { type: "button", class: "klt-button", click: this.measure }, "measure on copies"),
          " ",
          html("code", {}, "tape.measure()"),
        ),
      );
    } else if (sweep !== this.known || !this.drawn) this.begin(sweep);
    else if (sweep.length !== this.drawn) this.waiting ??= setTimeout(() => this.grow(), PAUSE);
    // Arrays get their names last.
    if (this.drawn && this.toldNames !== this.names()) this.draw();
  }

  /** What the arrays of this step are called. */
  private names(): string {
    return this.known[this.at]![1].map(([array]) => this.name(array)).join();
  }

  private name(array: number): string {
    return array < 0 ? "" : this.store.name(this.store.memoryOf(array));
  }

  /** Another pass than before: from its first step on. */
  private begin(sweep: SweepStep[]): void {
    this.known = sweep;
    this.at = this.drawn = 0;
    this.element.replaceChildren(...this.parts);
    this.grow();
  }

  private grow(): void {
    clearTimeout(this.waiting);
    this.waiting = undefined;
    if (!this.known.length) return;
    const first = !this.drawn;
    this.drawn = this.known.length;
    this.slider.max = String(this.drawn - 1);
    this.slider.disabled = this.drawn < 2;
    this.course.follow(this.known);
    this.strip.draw();
    this.total.data = ` of ${this.drawn}`;
    if (first) this.draw();
  }

  close(): void {
    this.strip.close();
    clearTimeout(this.waiting);
  }

  private button(sign: string, label: string, by: number): HTMLElement {
    return html("button", { type: "button", class: "klt-button", "aria-label": label, click: () => this.go(this.at + by) }, sign);
  }

  private go(step: number): void {
    this.at = Math.min(this.drawn - 1, Math.max(0, step));
    this.selection.pick(this.known[this.at]![0], null);
    this.draw();
  }

  private draw(): void {
    this.slider.value = String(this.at);
    this.strip.mark(this.at);
    this.toldNames = this.names();
    const [record, norms, where] = this.known[this.at]!,
      step = this.store.step(record),
      trend = this.course.trends[this.at]!;
    this.slider.setAttribute("aria-valuetext", `step ${this.at + 1}: ${step.title}`);
    this.now.replaceChildren(
      html(
        "p",
        {},
        html("b", {}, `step ${this.at + 1}`, html("span", { "aria-hidden": "true" }, this.total)),
        `: back through launch ${record + 1}, `,
        html("code", {}, step.title),
        " ",
        html("span", { class: "klt-quiet" }, where ?? step.place),
        ...(trend ? [" ", html("b", { class: "klt-alarm" }, `⚠ ${said(trend)}`)] : []),
      ),
      norms.length ? this.table(norms) : html("p", { class: "klt-quiet" }, "It changed no adjoint of an array that requires gradients."),
    );
  }

  private table(norms: [array: number, norm: Norm][]): HTMLElement {
    const rows = norms.map(([array, norm]) =>
      html(
        "tr",
        {},
        html("td", {}, array < 0 ? "what the loop carries" : html("code", {}, this.name(array))),
        html("td", { class: "klt-number" }, typeof norm === "number" ? norm.toPrecision(4) : norm),
        html("td", { class: "klt-quiet" }, array < 0 ? "" : this.store.layout(array)),
      ),
    );
    const head = html(
      "tr",
      {},
      html("th", { scope: "col" }, "adjoint of"),
      html("th", { scope: "col", class: "klt-number" }, "norm"),
      html("th", { scope: "col" }, "array"),
    );
    return html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows));
  }
}

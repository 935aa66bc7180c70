// The backward pass, step by step: which adjoints each launch changed, how large they are then, and where a
// gradient vanishes or explodes.

import { cut, html, svg } from "./dom";
import type { Norm, SweepStep } from "./protocol";
import type { Selection } from "./selection";
import type { Store } from "./store";

const HEIGHT = 90, LEFT = 44, MOST_BARS = 400;
const NOTHING = "No backward pass has been watched yet. Call tape.backward(...) after this tape is shown: then every step of the sweep stands here, with the adjoints that it changed.";

/** A factor by which a gradient may change in one pass before it is worth a word. */
export const FAR = 1e6;

export type Trend = "" | "vanishes" | "explodes" | "zero" | "not finite";

export function size(norms: SweepStep[1]): number {
  return Math.max(0, ...norms.map(([, norm]) => value(norm)));
}

function value(norm: Norm): number {
  return typeof norm === "number" ? norm : Infinity;
}

/** What is to be said of the adjoints after each step, measured by those next to the loss. */
export function trends(sweep: SweepStep[]): Trend[] {
  const sizes = sweep.map(([, norms]) => size(norms));
  const first = sizes.find((one) => one > 0 && one < Infinity) ?? 1;
  return sizes.map((one, i) => {
    if (!sweep[i]![1].length) return "";
    if (one === Infinity) return "not finite";
    if (one === 0) return "zero";
    return one > first * FAR ? "explodes" : one < first / FAR ? "vanishes" : "";
  });
}

export class Sweep {
  readonly element = html("div", { class: "klt-sweep" });
  private at = 0;
  private known: SweepStep[] = [];
  private strip = html("div", { class: "klt-strip" });
  private slider = html("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "step of the backward pass", input: () => this.go(Number(this.slider.value)) });
  private now = html("div", { class: "klt-now", "aria-live": "polite" });

  constructor(private store: Store, private selection: Selection) {}

  update(): void {
    const sweep = this.store.data.sweep;
    if (!sweep.length) {
      this.known = [];
      this.element.replaceChildren(html("p", { class: "klt-quiet" }, NOTHING));
      return;
    }
    if (sweep === this.known) return;
    const begun = this.known.length > 0;
    this.known = sweep;
    this.slider.max = String(sweep.length - 1);
    this.slider.disabled = sweep.length < 2;
    this.element.replaceChildren(this.strip, html("div", { class: "klt-steps" },
      this.button("◀", "one step towards the loss", -1), this.slider, this.button("▶", "one step further back", 1)), this.now);
    this.at = begun ? Math.min(this.at, sweep.length - 1) : 0;
    this.draw();
  }

  private button(sign: string, label: string, by: number): HTMLElement {
    return html("button", { type: "button", class: "klt-button", "aria-label": label, click: () => this.go(this.at + by) }, sign);
  }

  private go(step: number): void {
    this.at = Math.min(this.known.length - 1, Math.max(0, step));
    this.selection.pick(this.known[this.at]![0], null);
    this.draw();
  }

  private draw(): void {
    this.slider.value = String(this.at);
    const [record, norms] = this.known[this.at]!, step = this.store.step(record), trend = trends(this.known)[this.at]!;
    this.slider.setAttribute("aria-valuetext", `step ${this.at + 1}: ${step.title}`);
    this.strip.replaceChildren(this.bars());
    const rows = norms.map(([array, norm]) => html("tr", {}, html("td", {}, html("code", {}, `${this.store.name(this.store.memoryOf(array))}`)),
      html("td", { class: "klt-number" }, typeof norm === "number" ? norm.toPrecision(4) : norm), html("td", { class: "klt-quiet" }, this.store.layout(array))));
    this.now.replaceChildren(
      html("p", {}, html("b", {}, `step ${this.at + 1} of ${this.known.length}`), ": back through launch ", `${record + 1}, `, html("code", {}, step.title), " ", html("span", { class: "klt-quiet" }, step.place),
        ...(trend ? [" ", html("b", { class: "klt-alarm" }, `⚠ the gradient ${trend === "zero" || trend === "not finite" ? "is " + trend : trend} here`)] : [])),
      norms.length ? html("table", {}, html("thead", {}, html("tr", {}, html("th", {}, "adjoint of"), html("th", { class: "klt-number" }, "norm"), html("th", {}, "array"))), html("tbody", {}, ...rows))
        : html("p", { class: "klt-quiet" }, "It changed no adjoint of an array that requires gradients."));
  }

  /** The largest norm after each step, on a logarithmic scale; of a long pass, of neighbours the largest. */
  private bars(): SVGElement {
    const width = Math.max(200, this.element.clientWidth || 600) - 4, sizes = this.known.map(([, norms]) => size(norms));
    const finite = sizes.filter((one) => one > 0 && one < Infinity).map(Math.log10);
    const low = Math.floor(Math.min(0, ...finite)) - 1, high = Math.ceil(Math.max(0, ...finite)) + 0.3;
    const y = (one: number) => (one === Infinity ? 2 : one === 0 ? HEIGHT : ((high - Math.log10(one)) / (high - low)) * HEIGHT);
    const bars = Math.min(sizes.length, MOST_BARS), room = (width - LEFT) / bars, words = trends(this.known);
    const drawn: SVGElement[] = [];
    for (let bar = 0; bar < bars; bar++) {
      const from = Math.floor((bar * sizes.length) / bars), to = Math.max(from + 1, Math.floor(((bar + 1) * sizes.length) / bars));
      const tallest = Math.max(...sizes.slice(from, to)), word = words.slice(from, to).find(Boolean);
      const begins = word !== undefined && words[from - 1] !== word;
      const here = from <= this.at && this.at < to, x = LEFT + bar * room;
      drawn.push(svg("g", { class: `klt-bar${word ? " klt-far" : ""}${here ? " klt-here" : ""}`, click: () => this.go(from) },
        svg("title", {}, `step ${from + 1}: ${tallest.toPrecision(3)}${word ? ", " + word : ""}`),
        svg("rect", { class: "klt-hit", x, y: 0, width: room, height: HEIGHT + 14 }),
        svg("rect", { class: "klt-level", x: x + Math.min(1, room / 8), y: y(tallest), width: Math.max(1, Math.min(40, room - 2)), height: HEIGHT - y(tallest) + 1 }),
        ...(begins ? [svg("text", { x, y: HEIGHT + 12 }, `⚠ ${word}`)] : [])));
    }
    const near = (one: number, other: number) => Math.abs(one - other) * HEIGHT < 14 * (high - low);
    const scale = [0, Math.ceil(low), Math.floor(high)].filter((one, i, all) => !all.slice(0, i).some((other) => near(one, other))).map((power) => {
      const at = ((high - power) / (high - low)) * HEIGHT;
      return svg("g", {}, svg("line", { class: "klt-lane", x1: LEFT - 4, x2: width, y1: at, y2: at }), svg("text", { class: "klt-dim", x: LEFT - 8, y: at + 4, "text-anchor": "end" }, cut(`1e${power}`, 6)));
    });
    return svg("svg", { class: "klt-picture", width, height: HEIGHT + 16, role: "img", "aria-label": "the largest norm of the adjoints after each step, from the loss on" }, ...scale, ...drawn);
  }
}

// The sizes of a gradient as a strip of bars on a logarithmic scale: one for each step, of many steps for neighbours.

import type { Course, Trend } from "./course";
import { cut, html, svg } from "./dom";

const HEIGHT = 90, LEFT = 44, MOST_BARS = 400, WIDEST_BAR = 40;

interface Bar {
  from: number;
  to: number;
  size: number;
  trend: Trend;
  begins: boolean;
}

/** The steps in at most so many bars, each with the largest of its sizes. */
export function barsOf({ sizes, trends }: Course, most: number): Bar[] {
  const count = Math.min(sizes.length, most);
  const bars: Bar[] = [];
  for (let bar = 0; bar < count; bar++) {
    const from = Math.floor((bar * sizes.length) / count), to = Math.max(from + 1, Math.floor(((bar + 1) * sizes.length) / count));
    let size = 0, trend: Trend = "";
    for (let step = from; step < to; step++) {
      size = Math.max(size, sizes[step]!);
      trend ||= trends[step]!;
    }
    bars.push({ from, to, size, trend, begins: trend !== "" && trends[from - 1] !== trend });
  }
  return bars;
}

export class Strip {
  readonly element = html("div", { class: "klt-strip" });
  private here = svg("rect", { class: "klt-here", y: 0, height: HEIGHT + 14 });
  private bars: Bar[] = [];
  private room = 1;

  constructor(private course: Course, private go: (step: number) => void) {}

  /** Draw all bars, in a few paths: there may be many and they change often. */
  draw(): void {
    const width = Math.max(200, this.element.clientWidth || 600) - 4, [low, high] = this.range();
    this.bars = barsOf(this.course, Math.min(MOST_BARS, width - LEFT));
    this.room = (width - LEFT) / Math.max(1, this.bars.length);
    const y = (size: number) => (size === Infinity ? 2 : size === 0 ? HEIGHT : ((high - Math.log10(size)) / (high - low)) * HEIGHT);
    const gap = Math.min(1, this.room / 8), wide = Math.max(1, Math.min(WIDEST_BAR, this.room - 2));
    const path = (far: boolean) => this.bars.map((bar, i) => ((bar.trend !== "") === far ? `M${(LEFT + i * this.room + gap).toFixed(1)} ${y(bar.size).toFixed(1)}h${wide.toFixed(1)}V${HEIGHT + 1}h-${wide.toFixed(1)}z` : "")).join("");
    const marks = this.bars.flatMap((bar, i) => (bar.begins ? [svg("text", { class: "klt-far", x: LEFT + i * this.room, y: HEIGHT + 12 }, `⚠ ${bar.trend}`)] : []));
    this.element.replaceChildren(svg("svg", {
      class: "klt-picture", width, height: HEIGHT + 16, role: "img", "aria-label": "the largest norm of the adjoints after each step, from the loss on",
      click: (event: MouseEvent) => this.clicked(event), mousemove: (event: MouseEvent) => this.hovered(event),
    }, ...this.scale(low, high, width), this.here, svg("path", { class: "klt-level", d: path(false) }), svg("path", { class: "klt-level klt-far", d: path(true) }), ...marks));
  }

  /** Show where the reader is. */
  mark(step: number): void {
    const at = this.bars.findIndex(({ from, to }) => from <= step && step < to);
    this.here.setAttribute("x", String(LEFT + Math.max(0, at) * this.room));
    this.here.setAttribute("width", String(Math.max(2, Math.min(WIDEST_BAR + 2, this.room))));
  }

  private range(): [low: number, high: number] {
    let [low, high] = [0, 0];
    for (const size of this.course.sizes) {
      if (!(size > 0 && size < Infinity)) continue;
      low = Math.min(low, Math.log10(size));
      high = Math.max(high, Math.log10(size));
    }
    return [Math.floor(low) - 1, Math.ceil(high) + 0.3];
  }

  private scale(low: number, high: number, width: number): SVGElement[] {
    const at = (power: number) => ((high - power) / (high - low)) * HEIGHT;
    const powers = [0, Math.ceil(low), Math.floor(high)].filter((one, i, all) => all.slice(0, i).every((other) => Math.abs(at(one) - at(other)) >= 14));
    return powers.map((power) => svg("g", {}, svg("line", { class: "klt-lane", x1: LEFT - 4, x2: width, y1: at(power), y2: at(power) }),
      svg("text", { class: "klt-dim", x: LEFT - 8, y: at(power) + 4, "text-anchor": "end" }, cut(`1e${power}`, 6))));
  }

  private barAt(event: MouseEvent): Bar | undefined {
    const x = event.clientX - this.element.getBoundingClientRect().left;
    return this.bars[Math.floor((x - LEFT) / this.room)];
  }

  private clicked(event: MouseEvent): void {
    const bar = this.barAt(event);
    if (bar) this.go(bar.from);
  }

  private hovered(event: MouseEvent): void {
    const bar = this.barAt(event);
    this.element.title = bar ? `step ${bar.from + 1}: ${bar.size.toPrecision(3)}${bar.trend && ", " + bar.trend}` : "";
  }
}

// The sizes of a gradient as a strip of bars on a logarithmic scale: one for each step, of many steps for neighbours.

import { type Bar, Bars } from "./bars";
import type { Course } from "./course";
import { html, svg, within } from "./dom";

const TOP = 8,
  HEIGHT = 90,
  LEFT = 44,
  MOST_BARS = 400,
  FEWEST_BARS = 16,
  MARK = 84;
/** Below every power of ten that a float64 has, and above. */
const ABYSS = 400;

/** A bar in the strip's own units: one to the right for each bar, one up for each power of ten. */
function shape({ size }: Bar, at: number): string {
  if (size === 0) return "";
  return `M${at} ${ABYSS}V${size === Infinity ? -ABYSS : -Number(Math.log10(size).toFixed(2))}h.9V${ABYSS}z`;
}

export class Strip {
  readonly element = html("div", { class: "klt-strip" });
  private bars = new Bars(MOST_BARS);
  private here = svg("rect", { class: "klt-here", y: TOP, height: HEIGHT + 6 });
  private near = svg("path", { class: "klt-level" });
  private far = svg("path", { class: "klt-level klt-far" });
  private room = svg("svg", { x: LEFT, y: TOP, height: HEIGHT, preserveAspectRatio: "none" }, this.near, this.far);
  private scale = svg("g");
  private marks = svg("g");
  private picture = svg(
    "svg",
    {
      class: "klt-picture",
      height: TOP + HEIGHT + 16,
      role: "img",
      "aria-label": "the largest norm of the adjoints after each step, from the loss on",
      click: (event: MouseEvent) => this.clicked(event),
      mousemove: (event: MouseEvent) => this.hovered(event),
    },
    this.scale,
    this.here,
    this.room,
    this.marks,
  );
  private width = 0;
  private drawn = "";
  private at = 0;
  private resized = new ResizeObserver(() => {
    if (this.element.clientWidth && this.element.clientWidth !== this.width) this.draw();
  });

  constructor(
    private course: Course,
    private go: (step: number) => void,
  ) {
    this.element.append(this.picture);
    this.resized.observe(this.element);
  }

  close(): void {
    this.resized.disconnect();
  }

  /** Draw all bars, in a few paths: there may be many and they change often. */
  draw(): void {
    const { bars } = this.bars.follow(this.course);
    this.width = this.element.clientWidth || 600;
    const shapes = bars.map(shape),
      paths = (far: boolean) => shapes.filter((_, i) => (bars[i]!.trend !== "") === far).join("");
    this.near.setAttribute("d", paths(false));
    this.far.setAttribute("d", paths(true));
    this.picture.setAttribute("width", String(this.width));
    this.room.setAttribute("width", String(this.breadth));
    this.frame();
    this.name();
    this.mark(this.at);
  }

  /** Show where the reader is. */
  mark(step: number): void {
    this.at = step;
    this.here.setAttribute("x", String(LEFT + this.bars.barOf(step) * this.wide - 1));
    this.here.setAttribute("width", String(Math.max(3, this.wide + 2)));
  }

  private get breadth(): number {
    return Math.max(60, this.width - LEFT - 2);
  }

  private get places(): number {
    return Math.max(FEWEST_BARS, this.bars.bars.length);
  }

  /** How wide a bar is on the page. */
  private get wide(): number {
    return this.breadth / this.places;
  }

  /** The powers of ten that the strip shows, with lines at a few of them. */
  private frame(): void {
    const low = Math.floor(this.course.lowest) - 1,
      high = Math.ceil(this.course.highest) + 0.3;
    this.room.setAttribute("viewBox", `0 ${-high} ${this.places} ${high - low}`);
    const state = [low, high, this.width].join();
    if (state === this.drawn) return;
    this.drawn = state;
    const y = (power: number) => TOP + ((high - power) / (high - low)) * HEIGHT;
    const powers = [0, Math.ceil(low), Math.floor(high)].filter((one, i, all) =>
      all.slice(0, i).every((other) => Math.abs(y(one) - y(other)) >= 14),
    );
    this.scale.replaceChildren(
      ...powers.map((power) =>
        svg(
          "g",
          {},
          svg("line", { class: "klt-lane", x1: LEFT - 4, x2: this.width, y1: y(power), y2: y(power) }),
          svg("text", { class: "klt-dim", x: LEFT - 8, y: y(power) + 4, "text-anchor": "end" }, `1e${power}`),
        ),
      ),
    );
  }

  /** Name the trends where they begin, as far as there is room for words. */
  private name(): void {
    let free = -Infinity;
    const found = this.bars.beginnings().filter((at) => {
      const fits = at * this.wide >= free;
      if (fits) free = at * this.wide + MARK;
      return fits;
    });
    const marks = found.map((at) =>
      svg(
        "text",
        { class: "klt-far", x: LEFT + Math.min(at * this.wide, this.breadth - MARK), y: TOP + HEIGHT + 12 },
        `⚠ ${this.bars.bars[at]!.trend}`,
      ),
    );
    this.marks.replaceChildren(...marks);
  }

  private stepsAt(event: MouseEvent): [from: number, to: number] | undefined {
    const { bars, span } = this.bars,
      place = (within(this.picture, event)[0] - LEFT) / this.wide;
    // Behind the last bar there is room, and before the first a scale.
    const at = Math.max(0, Math.min(bars.length - 1, Math.floor(place)));
    return bars[at] && [at * span, Math.min(this.course.sizes.length, (at + 1) * span)];
  }

  private clicked(event: MouseEvent): void {
    const steps = this.stepsAt(event);
    if (steps) this.go(steps[0]);
  }

  private hovered(event: MouseEvent): void {
    const steps = this.stepsAt(event);
    this.element.title = steps ? this.told(...steps) : "";
  }

  private told(from: number, to: number): string {
    const { size, trend } = this.bars.bars[this.bars.barOf(from)]!;
    const which = to === from + 1 ? `step ${to}: ` : `steps ${from + 1} to ${to}: at most `;
    return `${which}${size.toPrecision(3)}${trend && ", " + trend}`;
  }
}

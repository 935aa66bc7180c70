// The tape with time downwards and arrays across.  Of a long tape only the rows in sight are in the page.

import { bytes, count, cut, duration, html, shorten, svg, within } from "./dom";
import type { Overwrite } from "./protocol";
import type { Selection } from "./selection";
import type { Store } from "./store";

const ROW = 24,
  HEAD = 40,
  MOST_HEIGHT = 384;
/** The room for what stands left of the lanes, with the columns of grid and time, and without them in a narrow view. */
const LABELS = 300,
  FEW_LABELS = 150,
  FEWEST_LABELS = 104,
  NARROW = 600;
/** The width before it is in the page, or while another tab is open. */
const USUAL = 800;
/** How wide lanes are that all fit, and those of which some are out of sight; in a narrow view they have less. */
const LANES = { narrowest: 44, scrolled: 88 },
  NARROW_LANES = { narrowest: 26, scrolled: 40 },
  WIDEST = 130;
/** From which width on a lane has room for the numbers of versions, and where the names of lanes may begin in a narrow view. */
const NUMBERED = 30,
  NAMES = 80;
/** How wide a letter of a name is, one of a bracket, and what stays free between the names of neighbouring lanes. */
const LETTER = 7.4,
  SMALL_LETTER = 5.6,
  GAP = 8;
const OUTCOMES = { saved: "kept", tainted: "⚠ lost", refused: "⛔ refused" };

export class Timeline {
  readonly element: HTMLElement;
  private scroller: HTMLElement;
  private spacer: HTMLElement;
  private picture: SVGElement;
  private follows: boolean;
  /** Whether the reader has scrolled sideways. */
  private isSteered = false;
  private drawnAt: [top: number, left: number] = [-1, -1];
  /** Read once before each drawing, as what it draws gets its room. */
  private width = 0;
  private hasTimes = false;
  private lanesInSight = html("span", { class: "klt-insight" });
  private resized = new ResizeObserver(() => {
    // A view that was wider for a moment has been scrolled back by the browser: follow to the end again.
    if (this.scroller.clientWidth !== this.width) this.update();
  });

  constructor(
    private store: Store,
    private selection: Selection,
    id: string,
  ) {
    this.spacer = html("div", { class: "klt-spacer" });
    this.picture = svg("svg", { class: "klt-picture", role: "none" });
    this.scroller = html(
      "div",
      {
        class: "klt-scroller",
        tabindex: 0,
        role: "listbox",
        id,
        "aria-label": "launches on the tape, in order; arrow keys move, Enter shows more",
        scroll: () => this.scrolled(),
        keydown: (event: KeyboardEvent) => this.key(event),
        click: (event: MouseEvent) => this.click(event),
      },
      this.picture,
      this.spacer,
    );
    this.element = html("div", { class: "klt-timeline" }, this.scroller, legend(this.lanesInSight));
    this.resized.observe(this.scroller);
    selection.listen(() => this.draw());
    this.follows = store.length === 0;
  }

  private get isNarrow(): boolean {
    return (this.width || USUAL) < NARROW;
  }

  private get labels(): number {
    if (!this.isNarrow) return LABELS;
    return Math.round(Math.min(FEW_LABELS, Math.max(FEWEST_LABELS, 0.37 * this.width)));
  }

  private get lane(): number {
    const gap = this.isNarrow ? GAP : 0,
      room = (this.width || USUAL) - this.labels - gap,
      lanes = Math.max(1, this.store.data.memories.length),
      { narrowest, scrolled } = this.isNarrow ? NARROW_LANES : LANES;
    // The last name is wider than its lane: it gets more of the gap where there is more.
    return room / lanes < narrowest ? scrolled : Math.min(WIDEST, Math.max(narrowest, (room - gap) / lanes));
  }

  update(): void {
    this.fit();
    if (this.follows) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
      this.bring(this.store.length - 1);
    }
    this.paint();
  }

  /** Bring the arrays of a record into sight, or the last of them, unless the reader scrolls sideways. */
  private bring(record: number): void {
    if (this.isSteered || record < 0) return;
    const step = this.store.step(record),
      memories = [...step.reads, ...step.writes].map(([, array]) => this.store.memoryOf(array));
    if (!memories.length) return;
    const room = (this.width || USUAL) - this.labels,
      least = this.lane * (Math.max(...memories) + 1) - room,
      most = this.lane * Math.min(...memories);
    const left = Math.max(least, Math.min(Math.max(least, most), this.scroller.scrollLeft));
    if (left !== this.scroller.scrollLeft) this.scroller.scrollLeft = left;
  }

  close(): void {
    this.resized.disconnect();
  }

  private scrolled(): void {
    const { scrollTop, scrollLeft, clientHeight, scrollHeight } = this.scroller;
    if (scrollTop === this.drawnAt[0] && scrollLeft === this.drawnAt[1]) return;
    if (this.scroller.clientWidth !== this.width) return this.update(); // so it was the browser that scrolled
    this.isSteered ||= scrollLeft !== this.drawnAt[1];
    this.follows = scrollTop + clientHeight >= scrollHeight - ROW;
    this.draw();
  }

  /** One for each record, and one for what is written outside of the tape. */
  private get rows(): number {
    return this.store.length + Number(this.store.outside);
  }

  /** The size of everything, in sight or not. */
  private get extent(): [width: number, height: number] {
    return [this.labels + this.lane * this.store.data.memories.length, HEAD + ROW * this.rows];
  }

  /** The height of what is in sight: a scroll bar may take room or lie above the picture, so that goes to the end. */
  private get sight(): number {
    const [width, height] = this.extent;
    return Math.min(height, MOST_HEIGHT) + 2 + (width > this.width ? 12 : 0);
  }

  /** Give everything its room, by the width that there is: another one than before, perhaps, and a scroll bar takes of it. */
  private fit(): void {
    for (const _ of ["as it is", "with its scroll bars"]) {
      this.width = this.scroller.clientWidth;
      const [width, height] = this.extent;
      this.spacer.style.width = `${width}px`;
      this.spacer.style.height = `${height}px`;
      this.scroller.style.height = `${this.sight}px`;
      if (this.scroller.clientWidth === this.width) return;
    }
  }

  /** Draw what is in sight. */
  draw(): void {
    this.fit();
    this.paint();
  }

  private paint(): void {
    const { store, scroller, lane, labels, sight } = this;
    this.hasTimes = store.data.times.some((time) => time >= 0);
    const seen = this.width || Math.min(this.extent[0], USUAL);
    this.picture.setAttribute("width", String(seen));
    this.picture.setAttribute("height", String(sight));
    const [left, top] = [scroller.scrollLeft, scroller.scrollTop];
    this.drawnAt = [top, left];
    const first = Math.max(0, Math.floor(top / ROW) - 1),
      last = Math.min(store.length, Math.ceil((top + sight) / ROW) + 1);
    const lanes = [
      Math.max(0, Math.floor(left / lane) - 1),
      Math.min(store.data.memories.length, Math.ceil((left + seen) / lane) + 1),
    ] as const;
    const x = (memory: number) => labels + lane * (memory + 0.5) - left;
    const y = (record: number) => HEAD + ROW * (record + 0.5) - top;
    const rows = Array.from({ length: last - first }, (_, i) => first + i);
    this.picture.replaceChildren(
      svg("g", {}, ...this.bands(rows, lanes, x, y, seen, sight)),
      svg("g", {}, ...this.brackets(first, last, x, y)),
      ...rows.map((record) => this.row(record, x, y)),
      ...(store.outside ? [svg("text", { x: 34, y: y(store.length) + 4, class: "klt-dim" }, "outside of the tape")] : []),
      this.head(lanes, x, seen, lane),
    );
    this.lanesInSight.textContent = this.partInSight(left, seen);
    const picked = this.selection.record;
    if (picked === null) scroller.removeAttribute("aria-activedescendant");
    else scroller.setAttribute("aria-activedescendant", `${scroller.id}-${picked}`);
  }

  /** Which of the arrays are in sight, in words; nothing where all are. */
  private partInSight(left: number, width: number): string {
    const lanes = this.store.data.memories.length,
      first = Math.round(left / this.lane),
      last = Math.min(lanes, Math.floor((left + width - this.labels) / this.lane + 0.5));
    if (last - first >= lanes) return "";
    return `◂ arrays ${first + 1} to ${last} of ${lanes} ▸`;
  }

  private bands(
    rows: number[],
    lanes: readonly [number, number],
    x: (m: number) => number,
    y: (r: number) => number,
    width: number,
    height: number,
  ): SVGElement[] {
    const found: SVGElement[] = [];
    const { record, memory } = this.selection;
    if (memory !== null) found.push(svg("rect", { class: "klt-lit", x: x(memory) - this.lane / 2, y: 0, width: this.lane, height }));
    for (let m = lanes[0]; m < lanes[1]; m++) {
      found.push(
        svg("line", { class: this.store.hasGradient(m) ? "klt-lane klt-gradient" : "klt-lane", x1: x(m), x2: x(m), y1: HEAD, y2: height }),
      );
    }
    if (record !== null && rows.includes(record)) {
      found.push(svg("rect", { class: "klt-lit", x: 0, y: y(record) - ROW / 2, width, height: ROW }));
    }
    return found;
  }

  private head(lanes: readonly [number, number], x: (m: number) => number, width: number, lane: number): SVGElement {
    const names = [];
    for (let m = lanes[0]; m < lanes[1]; m++) {
      if (x(m) < this.labels || x(m) > width) continue; // its lane is out of sight, only the end of its name would show
      names.push(this.nameOf(m, x(m), width, lane));
    }
    return svg(
      "g",
      {},
      svg("rect", { class: "klt-headband", x: 0, y: 0, width, height: HEAD - 2 }),
      ...(this.isNarrow ? [] : names),
      svg("rect", { class: "klt-headband", x: 0, y: 0, width: this.labels - 4, height: HEAD - 2 }),
      ...(this.isNarrow ? names : []),
      svg("text", { x: 34, y: 24, class: "klt-dim" }, "launch"),
      ...this.columns(24, "grid", this.hasTimes ? "time" : ""),
    );
  }

  /** The name above a lane, with its extents; where lanes are narrow the names of neighbours stand at two heights instead. */
  private nameOf(memory: number, x: number, width: number, lane: number): SVGElement {
    const { store } = this,
      isShared = lane < LANES.narrowest,
      mark = store.hasGradient(memory) ? "∇" : "",
      half = isShared ? Math.min(lane - GAP / 2, width - x, x - NAMES) : (lane - GAP) / 2,
      room = Math.floor((2 * half) / LETTER);
    const about = `${store.name(memory)}: ${this.layoutOf(memory)}, ${bytes(store.data.memories[memory]![1])}${mark ? ", requires gradients" : ""}`;
    return svg(
      "g",
      { class: "klt-name", "data-memory": memory },
      svg("title", {}, about),
      svg(
        "text",
        {
          x,
          y: isShared && memory % 2 ? 31 : 17,
          "text-anchor": "middle",
          class: store.isNamed(memory) ? "klt-code" : "klt-code klt-guess",
        },
        shorten(store.name(memory).replace(/^array /, "#"), room - mark.length) + mark,
      ),
      ...(isShared ? [] : [svg("text", { x, y: 31, "text-anchor": "middle", class: "klt-dim" }, cut(this.layoutOf(memory), room))]),
    );
  }

  /** Where the column of grids ends: that of times takes room only where there are times. */
  private get gridEnd(): number {
    return this.hasTimes ? 190 : LABELS - 14;
  }

  /** How many letters of a title fit before its grid. */
  private letters(grid: string, indent: number): number {
    const room = Math.floor(((this.isNarrow ? this.labels : this.gridEnd) - 38 - indent) / LETTER);
    return this.isNarrow || !grid ? room : room - Math.min(grid.length, 9) - 1;
  }

  /** What stands in the columns of grid and time, where there is room for them. */
  private columns(y: number, grid: string, time: string): SVGElement[] {
    if (this.isNarrow) return [];
    return [
      svg("text", { x: this.gridEnd, y, "text-anchor": "end", class: "klt-dim" }, cut(grid, 9)),
      svg("text", { x: LABELS - 14, y, "text-anchor": "end", class: "klt-dim" }, time),
    ];
  }

  private layoutOf(memory: number): string {
    return this.store.shape(this.store.firstArray(memory)).join("×");
  }

  private row(record: number, x: (m: number) => number, y: (r: number) => number): SVGElement {
    const { store } = this,
      step = store.step(record),
      grid = (step.grid ?? []).join("×"),
      indent = 4 * Math.min(store.depthOf(record), 4),
      at = y(record);
    const reads = new Set(step.reads.map(([, array]) => store.memoryOf(array)));
    const writes = new Map(store.versions[record]);
    const touched = [...reads, ...writes.keys()];
    const marks = [svg("line", { class: "klt-span", x1: x(Math.min(...touched)), x2: x(Math.max(...touched)), y1: at, y2: at })];
    for (const memory of new Set(touched)) marks.push(...mark(x(memory), at, reads.has(memory), writes.get(memory), this.lane >= NUMBERED));
    const problem = store.overwritesOf(record).some((one) => one.outcome !== "saved");
    return svg(
      "g",
      {
        role: "option",
        id: `${this.scroller.id}-${record}`,
        "data-record": record,
        "aria-selected": this.selection.record === record ? "true" : "false",
        "aria-label": this.spoken(record),
      },
      ...(touched.length ? marks : []),
      svg("rect", { class: "klt-paper", x: 0, y: at - ROW / 2, width: this.labels - 4, height: ROW }),
      ...(this.selection.record === record
        ? [svg("rect", { class: "klt-lit", x: 0, y: at - ROW / 2, width: this.labels - 4, height: ROW })]
        : []),
      ...Array.from({ length: indent / 4 }, (_, i) =>
        svg("rect", { class: "klt-scope", x: 2 + 4 * i, y: at - ROW / 2, width: 2, height: ROW }),
      ),
      svg("text", { x: 28 + indent, y: at + 4, "text-anchor": "end", class: "klt-dim" }, String(record + 1)),
      svg(
        "text",
        { x: 34 + indent, y: at + 4, class: step.kind === "launch" ? "klt-code klt-title" : "klt-code" },
        shorten((problem ? "⚠ " : "") + step.title, this.letters(grid, indent)),
      ),
      ...this.columns(at + 4, grid, duration(store.data.times[record] ?? -1)),
      svg("title", {}, this.spoken(record)),
    );
  }

  /** What a screen reader says of a record. */
  private spoken(record: number): string {
    const { store } = this,
      step = store.step(record);
    const names = (side: [string, number][]) => side.map(([, array]) => store.name(store.memoryOf(array))).join(", ");
    const parts = [
      `${record + 1}: ${step.title}`,
      step.grid
        ? count(
            step.grid.reduce((a, b) => a * b, 1),
            "thread",
          )
        : "",
      step.reads.length ? `reads ${names(step.reads)}` : "",
      step.writes.length ? `changes ${names(step.writes)}` : "",
      step.place,
    ];
    for (const one of store.overwritesOf(record)) {
      parts.push(one.writer === record ? `overwrites what launch ${one.reader + 1} needs` : "what it read is overwritten later");
    }
    return parts.filter(Boolean).join("; ");
  }

  /** Reader, writer and the array between them. */
  private brackets(first: number, last: number, x: (m: number) => number, y: (r: number) => number): SVGElement[] {
    const { store } = this,
      end = store.length;
    const seen: { one: Overwrite; writer: number; at: number }[] = [];
    for (const one of store.overwrites) {
      const writer = one.writer < 0 ? end : one.writer;
      if (writer >= first && one.reader <= last && seen.length <= 400) seen.push({ one, writer, at: x(store.memoryOf(one.array)) });
    }
    // A label that would reach into the bracket of a lane further right, at the same row, is left to the title.
    const lanes = new Map<number, number[]>();
    for (const { writer, at } of seen) lanes.set(writer, [...(lanes.get(writer) ?? []), at]);
    return seen.map(({ one, writer, at }) => {
      const next = Math.min(...(lanes.get(writer) ?? []).filter((other) => other > at));
      return this.bracket(one, at, y(one.reader), y(writer), next - at);
    });
  }

  private bracket(one: Overwrite, x: number, from: number, to: number, room: number): SVGElement {
    const bow = x + Math.min(18, this.lane / 3);
    const label = one.outcome === "saved" ? `kept ${bytes(one.bytes).replace("bytes", "B")}` : OUTCOMES[one.outcome];
    const goesOut = bow + LETTER * label.length > (this.width || USUAL),
      where = goesOut ? { x: x - 9, "text-anchor": "end" } : { x: bow + 3 };
    return svg(
      "g",
      { class: `klt-overwrite klt-${one.outcome}` },
      svg("title", {}, `${label}\nread at ${one.read[0]}: ${one.read[1]}\noverwritten at ${one.wrote[0]}: ${one.wrote[1]}`),
      svg("path", {
        d: `M${x + 5} ${from} H${bow - 3} Q${bow} ${from} ${bow} ${from + 3} V${to - 3} Q${bow} ${to} ${bow - 3} ${to} H${x + 9}`,
      }),
      svg("path", { d: `M${x + 12} ${to - 4} L${x + 7} ${to} L${x + 12} ${to + 4}` }),
      svg("text", { ...where, y: to - ROW / 2 + 4 }, SMALL_LETTER * label.length < room ? label : ""),
    );
  }

  private click(event: MouseEvent): void {
    const [left, top] = within(this.picture, event);
    const record = Math.floor((top + this.scroller.scrollTop - HEAD) / ROW);
    const memory = Math.floor((left + this.scroller.scrollLeft - this.labels) / this.lane);
    const inLane = left > this.labels && memory < this.store.data.memories.length ? memory : null;
    if (top < HEAD) this.selection.pick(null, inLane);
    else if (record < this.store.length) this.selection.pick(record, this.touches(record, inLane) ? inLane : null);
  }

  private touches(record: number, memory: number | null): boolean {
    const step = this.store.step(record);
    return [...step.reads, ...step.writes].some(([, array]) => this.store.memoryOf(array) === memory);
  }

  private key(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(MOST_HEIGHT / ROW) - 2),
      end = this.store.length - 1;
    const { record, memory } = this.selection;
    const jumps: Record<string, number> = {
      ArrowDown: record === null ? 0 : record + 1,
      ArrowUp: record === null ? end : record - 1,
      PageDown: (record ?? 0) + page,
      PageUp: (record ?? 0) - page,
      Home: 0,
      End: end,
    };
    const lanes = this.store.data.memories.length;
    const sideways: Record<string, number | null> = {
      ArrowRight: memory === null ? 0 : Math.min(lanes - 1, memory + 1),
      ArrowLeft: memory === null ? null : memory - 1,
    };
    if (event.key === "Escape" && (record ?? memory) !== null) this.selection.pick(null, null);
    else if (event.key in jumps) this.reveal(Math.min(end, Math.max(0, jumps[event.key]!)));
    else if (event.key in sideways) this.selection.pick(record, (sideways[event.key] ?? -1) < 0 ? null : sideways[event.key]!);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Pick a record and bring it into sight. */
  reveal(record: number): void {
    const top = ROW * record,
      sight = this.scroller.clientHeight - HEAD - ROW;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + sight) this.scroller.scrollTop = top - sight;
    this.fit();
    this.bring(record);
    this.selection.pick(record);
    this.draw();
  }
}

/** A circle reads, a square writes, a square with a hole does both; a number is the version written, from the second on. */
function mark(x: number, y: number, reads: boolean, version: number | undefined, isNumbered: boolean): SVGElement[] {
  if (version === undefined) return [svg("circle", { class: "klt-read", cx: x, cy: y, r: 4.5 })];
  const made = [svg("rect", { class: "klt-write", x: x - 5, y: y - 5, width: 10, height: 10, rx: 1 })];
  if (reads) made.push(svg("circle", { class: "klt-hole", cx: x, cy: y, r: 2.6 }));
  if (isNumbered && version > 1)
    made.push(svg("text", { class: "klt-version", x: x - 9, y: y + 3.5, "text-anchor": "end" }, String(version)));
  return made;
}

function legend(lanesInSight: HTMLElement): HTMLElement {
  const sign = (...shapes: SVGElement[]) => svg("svg", { width: 14, height: 12, "aria-hidden": "true" }, ...shapes),
    square = () => svg("rect", { class: "klt-write", x: 2, y: 1, width: 10, height: 10, rx: 1 });
  return html(
    "div",
    { class: "klt-legend" },
    html("span", {}, sign(svg("circle", { class: "klt-read", cx: 7, cy: 6, r: 4.5 })), "reads"),
    html("span", {}, sign(square()), "changes"),
    html("span", {}, sign(square(), svg("circle", { class: "klt-hole", cx: 7, cy: 6, r: 2.6 })), "both"),
    html("span", {}, "2: the second value on this tape"),
    html("span", {}, "∇ requires gradients"),
    lanesInSight,
  );
}

// The tape as a graph that one looks at: drawn, picked from, and laid out again only where it has changed.

import { type Drawn, type Frame, graphOf, type Node } from "./diagram";
import { cut, html, shorten, svg } from "./dom";
import { type Box, type Laid, layout } from "./layout";
import type { Selection } from "./selection";
import type { Store } from "./store";

/** Milliseconds between two drawings while a tape is recorded, and how much longer than a drawing took. */
const PAUSE = 300,
  RELIEF = 15;

/** How much smaller a graph is drawn so that it fits its room; one that does not fit then scrolls, with letters that can be read. */
const SMALLEST = 0.7,
  SCROLLED = 0.9;

export class Graph {
  readonly element = html("div", { class: "klt-graph", tabindex: 0, keydown: (event: KeyboardEvent) => this.key(event) });
  private drawnFor = "";
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private pause = PAUSE;
  private drawn: Drawn | undefined;
  private wronged = new Set<string>();
  private shape = "";
  private laid: Laid | undefined;

  constructor(
    private store: Store,
    private selection: Selection,
    private id: string,
  ) {
    selection.listen(() => this.light());
  }

  update(): void {
    const { epoch, data } = this.store;
    const state = [epoch, data.records.length, data.scopes.length, data.overwrites.length, data.names.length].join();
    if (state === this.drawnFor || this.waiting !== undefined) return;
    const draw = () => {
      this.waiting = undefined;
      if (this.element.hidden) return;
      this.drawnFor = state;
      const began = performance.now();
      this.draw();
      this.pause = Math.max(PAUSE, RELIEF * (performance.now() - began));
    };
    // While a tape is recorded, a layout for each frame would be of no use.
    if (this.drawnFor)
      this.waiting = setTimeout(() => {
        draw();
        this.update();
      }, this.pause);
    else draw();
  }

  private draw(): void {
    const drawn = graphOf(this.store);
    this.drawn = drawn;
    this.wronged = new Set([...this.store.wronged].map(drawn.array));
    if (!drawn.nodes.length) {
      this.element.replaceChildren(html("p", { class: "klt-quiet" }, "Nothing is recorded yet."));
      return;
    }
    const laid = this.laidOut(drawn),
      { width, height } = laid;
    const fitting = (this.element.clientWidth - 24) / (width + 16),
      scale = fitting < SMALLEST ? SCROLLED : Math.min(1, fitting);
    const picture = svg(
      "svg",
      {
        class: "klt-picture",
        width: (width + 16) * scale,
        height: (height + 16) * scale,
        viewBox: `-8 -8 ${width + 16} ${height + 16}`,
        role: "img",
        "aria-label": "graph of launches and arrays; arrow keys go through the launches",
      },
      svg(
        "defs",
        {},
        svg(
          "marker",
          { id: `${this.id}-arrow`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
          svg("path", { class: "klt-arrow", d: "M0 0 L8 4 L0 8 z" }),
        ),
      ),
      ...drawn.frames.map((frame) => this.frame(frame, laid.boxes.get(frame.id)!)),
      ...laid.lines.map((line) => this.edge(line)),
      ...drawn.nodes.map((node) => this.node(node, laid.boxes.get(node.id)!)),
    );
    this.element.replaceChildren(
      ...(drawn.note ? [html("p", { class: "klt-quiet" }, drawn.note)] : []),
      html("div", { class: "klt-graphroom" }, picture),
    );
    this.light();
  }

  /** Where everything stands: where it stood, if no more than words have changed. */
  private laidOut(drawn: Drawn): Laid {
    const shape = JSON.stringify([
      drawn.nodes.map(({ id, parent, label, detail }) => [id, parent, Math.min(20, label.length), Math.min(24, detail.length)]),
      drawn.frames.map(({ id, parent }) => [id, parent]),
      drawn.edges,
    ]);
    if (shape !== this.shape || !this.laid) [this.shape, this.laid] = [shape, layout(drawn)];
    return this.laid;
  }

  private frame(frame: Frame, at: Box): SVGElement {
    const [x, y] = [at.x - at.width / 2, at.y - at.height / 2];
    return svg(
      "g",
      { class: "klt-frame" },
      svg("rect", { x, y, width: at.width, height: at.height, rx: 5 }),
      svg("text", { x: x + 6, y: y + 13 }, cut(frame.label, Math.floor(at.width / 6.5))),
    );
  }

  private edge(points: { x: number; y: number }[]): SVGElement {
    const [first, ...rest] = points.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`);
    return svg("path", { class: "klt-edge", d: `M${first} L${rest.join(" L")}`, "marker-end": `url(#${this.id}-arrow)` });
  }

  private node(node: Node, at: Box): SVGElement {
    const isArray = node.id.startsWith("m") || node.id.startsWith("a");
    const overwritten = this.wronged.has(node.id);
    return svg(
      "g",
      {
        class: `klt-node ${isArray ? "klt-array" : "klt-launch"}${overwritten ? " klt-wronged" : ""}`,
        "data-node": node.id,
        click: () => this.pick(node),
      },
      svg("title", {}, `${node.label} ${node.detail}`),
      svg("rect", { x: at.x - at.width / 2, y: at.y - at.height / 2, width: at.width, height: at.height, rx: isArray ? at.height / 2 : 3 }),
      svg(
        "text",
        { x: at.x, y: at.y - (node.detail ? 2 : -4), "text-anchor": "middle", class: "klt-code" },
        (overwritten ? "⚠ " : "") + shorten(node.label, 20),
      ),
      svg("text", { x: at.x, y: at.y + 12, "text-anchor": "middle", class: "klt-dim" }, cut(node.detail, 24)),
    );
  }

  private pick(node: Node): void {
    if (node.record !== undefined) this.selection.pick(node.record, null);
    else if (node.memory !== undefined) this.selection.pick(null, node.memory);
  }

  private light(): void {
    const { record, memory } = this.selection,
      { drawn } = this;
    const lit = [record === null ? "" : drawn?.launch(record), memory === null ? "" : drawn?.array(memory)];
    for (const node of drawn?.nodes ?? []) {
      this.element.querySelector(`[data-node="${CSS.escape(node.id)}"]`)?.classList.toggle("klt-picked", lit.includes(node.id));
    }
  }

  close(): void {
    clearTimeout(this.waiting);
  }

  private key(event: KeyboardEvent): void {
    const launches = this.drawn?.nodes.filter((node) => node.record !== undefined) ?? [],
      { record } = this.selection;
    const at = launches.findIndex((node) => record !== null && node.id === this.drawn?.launch(record));
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step === undefined || !launches.length) return;
    this.pick(launches[Math.min(launches.length - 1, Math.max(0, at + step))]!);
    event.preventDefault();
    event.stopPropagation();
  }
}

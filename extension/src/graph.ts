// The tape as a graph: launches and arrays, scopes as frames, what repeats drawn once.

import dagre from "@dagrejs/dagre";
import { count, cut, html, shorten, svg } from "./dom";
import { type Group, type Part, shown, tree } from "./fold";
import type { Selection } from "./selection";
import type { Store } from "./store";

/** With more launches than these after folding, those of one kernel at one line become one. */
export const MOST_LAUNCHES = 150;
const PAUSE = 300;

/** How much smaller a graph is drawn, so that it fits its room, before one has to scroll. */
const SMALLEST = 0.65;

export interface Node {
  id: string;
  label: string;
  detail: string;
  record?: number;
  memory?: number;
  parent?: string;
}
export interface Frame {
  id: string;
  label: string;
  parent?: string;
}
export interface Drawn {
  nodes: Node[];
  frames: Frame[];
  edges: [from: string, to: string][];
  note: string;
}

/** Which nodes and edges a tape has. */
export function graphOf(store: Store): Drawn {
  const parts = tree(store.length, store.data.scopes, (record) => store.data.records[record]!);
  const records = [...shown(parts)];
  if (records.length > MOST_LAUNCHES) return crowd(store);
  const drawn: Drawn = { nodes: [], frames: [], edges: [], note: "" };
  place(store, parts, undefined, drawn);
  connect(store, records, (record) => `r${record}`, drawn);
  return drawn;
}

function place(store: Store, parts: Part[], parent: string | undefined, drawn: Drawn): void {
  for (const part of parts) {
    if (typeof part !== "number") {
      const id = `g${drawn.frames.length}`;
      drawn.frames.push({ id, label: title(part), parent });
      place(store, part.parts, id, drawn);
      continue;
    }
    const step = store.step(part);
    drawn.nodes.push({ id: `r${part}`, label: step.title, detail: (step.grid ?? []).join(" × "), record: part, parent });
  }
}

const title = (group: Group) => (group.times > 1 ? `${group.times} times` : group.name);

function connect(store: Store, records: number[], node: (record: number) => string, drawn: Drawn): void {
  const memories = new Set<number>(), edges = new Map<string, [string, string]>();
  for (const record of records) {
    const step = store.step(record);
    const join = (array: number, edge: (memory: string) => [string, string]) => {
      const memory = store.memoryOf(array), pair = edge(`m${memory}`);
      memories.add(memory);
      edges.set(pair.join(), pair);
    };
    for (const [, array] of step.reads) join(array, (memory) => [memory, node(record)]);
    for (const [, array] of step.writes) join(array, (memory) => [node(record), memory]);
  }
  for (const memory of memories) {
    const array = store.firstArray(memory);
    const mark = store.hasGradient(memory) ? " ∇" : "";
    drawn.nodes.push({ id: `m${memory}`, label: store.name(memory) + mark, detail: store.layout(array), memory });
  }
  drawn.edges.push(...edges.values());
}

/** A tape on which too much is different: kernels at their lines, and the parameters through which they meet. */
function crowd(store: Store): Drawn {
  const counts = new Map<string, { record: number; times: number }>();
  const roles = new Map<number, string>(), edges = new Map<string, [string, string]>();
  for (let record = 0; record < store.length; record++) {
    const step = store.step(record), key = `c${step.title}@${step.place}`;
    const known = counts.get(key);
    if (known) known.times++;
    else counts.set(key, { record, times: 1 });
    for (const [sides, into] of [[step.reads, true], [step.writes, false]] as const) {
      for (const [parameter, array] of sides) {
        const memory = store.memoryOf(array);
        if (!roles.has(memory)) roles.set(memory, `a${parameter}@${key}`);
        const pair: [string, string] = into ? [roles.get(memory)!, key] : [key, roles.get(memory)!];
        edges.set(pair.join("|"), pair);
      }
    }
  }
  const nodes: Node[] = [...counts].map(([id, { record, times }]) => ({ id, label: store.step(record).title, detail: count(times, "launch", "launches"), record }));
  const arrays = new Map<string, number>();
  for (const role of roles.values()) arrays.set(role, (arrays.get(role) ?? 0) + 1);
  for (const [id, times] of arrays) nodes.push({ id, label: id.slice(1, id.indexOf("@")), detail: count(times, "array") });
  const note = "This tape is long and hardly repeats itself: launches of one kernel at one line are drawn as one, arrays by the parameter that took them first.";
  return { nodes, frames: [], edges: [...edges.values()], note };
}

export class Graph {
  readonly element = html("div", { class: "klt-graph", tabindex: 0, keydown: (event: KeyboardEvent) => this.key(event) });
  private drawnFor = "";
  private named: Record<string, string> = {};
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private nodes: Node[] = [];

  constructor(private store: Store, private selection: Selection) {
    selection.listen(() => this.light());
  }

  update(): void {
    const { epoch, data } = this.store;
    const state = [epoch, data.records.length, data.scopes.length, data.overwrites.length].join();
    if ((state === this.drawnFor && data.names === this.named) || this.waiting !== undefined) return;
    const draw = () => {
      this.waiting = undefined;
      if (this.element.hidden) return;
      this.drawnFor = state;
      this.named = data.names;
      this.draw();
    };
    // While a tape is recorded, a layout for each frame would be of no use.
    if (this.drawnFor) this.waiting = setTimeout(() => { draw(); this.update(); }, PAUSE);
    else draw();
  }

  private draw(): void {
    const drawn = graphOf(this.store);
    this.nodes = drawn.nodes;
    if (!drawn.nodes.length) {
      this.element.replaceChildren(html("p", { class: "klt-quiet" }, "Nothing is recorded yet."));
      return;
    }
    const laid = layout(drawn);
    const { width = 0, height = 0 } = laid.graph();
    const scale = Math.min(1, Math.max(SMALLEST, (this.element.clientWidth - 24) / (width + 16)));
    const picture = svg("svg", { class: "klt-picture", width: (width + 16) * scale, height: (height + 16) * scale, viewBox: `-8 -8 ${width + 16} ${height + 16}`, role: "img", "aria-label": "graph of launches and arrays; arrow keys go through the launches" },
      svg("defs", {}, svg("marker", { id: `${this.element.id}-arrow`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { class: "klt-arrow", d: "M0 0 L8 4 L0 8 z" }))),
      ...drawn.frames.map((frame) => this.frame(frame, laid.node(frame.id))),
      ...drawn.edges.map(([from, to]) => this.edge(laid.edge(from, to).points)),
      ...drawn.nodes.map((node) => this.node(node, laid.node(node.id))));
    this.element.replaceChildren(...(drawn.note ? [html("p", { class: "klt-quiet" }, drawn.note)] : []), html("div", { class: "klt-graphroom" }, picture));
    this.light();
  }

  private frame(frame: Frame, at: Box): SVGElement {
    const [x, y] = [at.x - at.width / 2, at.y - at.height / 2];
    return svg("g", { class: "klt-frame" }, svg("rect", { x, y, width: at.width, height: at.height, rx: 5 }),
      svg("text", { x: x + 6, y: y + 13 }, cut(frame.label, Math.floor(at.width / 6.5))));
  }

  private edge(points: { x: number; y: number }[]): SVGElement {
    const [first, ...rest] = points.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`);
    return svg("path", { class: "klt-edge", d: `M${first} L${rest.join(" L")}`, "marker-end": `url(#${this.element.id}-arrow)` });
  }

  private node(node: Node, at: Box): SVGElement {
    const isArray = node.id.startsWith("m") || node.id.startsWith("a");
    const overwritten = node.memory !== undefined && this.store.overwrites.some((one) => one.outcome !== "saved" && this.store.memoryOf(one.array) === node.memory);
    return svg("g", { class: `klt-node ${isArray ? "klt-array" : "klt-launch"}${overwritten ? " klt-wronged" : ""}`, "data-node": node.id, click: () => this.pick(node) },
      svg("title", {}, `${node.label} ${node.detail}`),
      svg("rect", { x: at.x - at.width / 2, y: at.y - at.height / 2, width: at.width, height: at.height, rx: isArray ? at.height / 2 : 3 }),
      svg("text", { x: at.x, y: at.y - (node.detail ? 2 : -4), "text-anchor": "middle", class: "klt-code" }, (overwritten ? "⚠ " : "") + shorten(node.label, 20)),
      svg("text", { x: at.x, y: at.y + 12, "text-anchor": "middle", class: "klt-dim" }, cut(node.detail, 24)));
  }

  private pick(node: Node): void {
    if (node.record !== undefined) this.selection.pick(node.record, null);
    else if (node.memory !== undefined) this.selection.pick(null, node.memory);
  }

  private light(): void {
    const { record, memory } = this.selection;
    const key = record === null ? -1 : this.store.data.records[record];
    for (const node of this.nodes) {
      const same = node.record !== undefined && record !== null && this.store.data.records[node.record] === key;
      const lit = same || (node.memory !== undefined && node.memory === memory);
      this.element.querySelector(`[data-node="${CSS.escape(node.id)}"]`)?.classList.toggle("klt-picked", lit);
    }
  }

  close(): void {
    clearTimeout(this.waiting);
  }

  private key(event: KeyboardEvent): void {
    const launches = this.nodes.filter((node) => node.record !== undefined);
    const at = launches.findIndex((node) => node.record === this.selection.record);
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step === undefined || !launches.length) return;
    this.pick(launches[Math.min(launches.length - 1, Math.max(0, at + step))]!);
    event.preventDefault();
    event.stopPropagation();
  }
}

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

function layout(drawn: Drawn): dagre.graphlib.Graph<Box> {
  const graph = new dagre.graphlib.Graph<Box>({ compound: true });
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 26, marginx: 4, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const frame of drawn.frames) graph.setNode(frame.id, { width: 0, height: 0 });
  for (const node of drawn.nodes) {
    const letters = Math.max(Math.min(20, node.label.length) * 7.6, Math.min(24, node.detail.length) * 6.2);
    graph.setNode(node.id, { width: Math.max(48, letters + 22), height: 36 });
  }
  for (const one of [...drawn.frames, ...drawn.nodes]) if (one.parent) graph.setParent(one.id, one.parent);
  for (const [from, to] of drawn.edges) graph.setEdge(from, to);
  dagre.layout(graph);
  return graph;
}

// Where the nodes and edges of a graph stand: each frame is laid out by itself, then stands as one node in the next.
//
// dagre can do frames, too, but not while somebody waits: thirty launches in one took it 400 ms, by themselves 60.

import dagre from "@dagrejs/dagre";
import type { Drawn, Frame, Node } from "./diagram";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}
export interface Point {
  x: number;
  y: number;
}
export interface Laid {
  width: number;
  height: number;
  /** The middle and the size of each node and frame. */
  boxes: Map<string, Box>;
  /** A line for each edge. */
  lines: Point[][];
}

const PAD = 10,
  TITLE = 18,
  TALL = 36,
  MARGIN = 4;

/** What stands directly in one frame, or in none. */
type Inside = string | undefined;

export function layout(drawn: Drawn): Laid {
  return new Layout(drawn).all();
}

class Layout {
  private parents = new Map<string, Inside>();
  private boxes = new Map<string, Box>();
  private lines: Point[][];

  constructor(private drawn: Drawn) {
    for (const one of [...drawn.frames, ...drawn.nodes]) this.parents.set(one.id, one.parent);
    this.lines = drawn.edges.map(() => []);
  }

  all(): Laid {
    const { width, height } = this.lay(undefined);
    this.shift(undefined, MARGIN, MARGIN);
    this.drawn.edges.forEach(([from, to], i) => this.meet(this.lines[i]!, this.boxes.get(from)!, this.boxes.get(to)!));
    return { width: width + 2 * MARGIN, height: height + 2 * MARGIN, boxes: this.boxes, lines: this.lines };
  }

  private within(frame: Inside): (Node | Frame)[] {
    return [...this.drawn.frames, ...this.drawn.nodes].filter((one) => one.parent === frame);
  }

  /** Give everything in a frame its place there; how large it has become. */
  private lay(frame: Inside): { width: number; height: number } {
    const graph = new dagre.graphlib.Graph<Box>();
    graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 26 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const one of this.within(frame)) graph.setNode(one.id, this.size(one));
    const ours = this.edgesOf(frame);
    for (const [from, to] of [...ours.map(([, from, to]) => [from, to] as const), ...this.order(frame)]) graph.setEdge(from, to);
    dagre.layout(graph);
    for (const one of graph.nodes()) this.boxes.set(one, graph.node(one));
    for (const [edge, from, to] of ours) this.lines[edge] = graph.edge(from, to).points.map(({ x, y }) => ({ x, y }));
    const { width = 0, height = 0 } = graph.graph();
    // dagre leads some edges around all nodes, above or below what it calls the height.
    const bends = ours.flatMap(([edge]) => this.lines[edge]!),
      top = bends.reduce((least, { y }) => Math.min(least, y), 0),
      bottom = bends.reduce((most, { y }) => Math.max(most, y), height);
    for (const one of [...bends, ...graph.nodes().map((id) => graph.node(id))]) one.y -= top;
    return { width, height: bottom - top };
  }

  private size(one: Node | Frame): { width: number; height: number } {
    if (!("detail" in one)) {
      const { width, height } = this.lay(one.id);
      return { width: Math.max(width, 6.5 * one.label.length) + 2 * PAD, height: height + PAD + TITLE };
    }
    const letters = Math.max(Math.min(20, one.label.length) * 7.6, Math.min(24, one.detail.length) * 6.2);
    return { width: Math.max(48, letters + 22), height: TALL };
  }

  /** The frames around a node, from the innermost outwards; the last is none. */
  private around(id: string): Inside[] {
    const found: Inside[] = [];
    for (let at = this.parents.get(id); ; at = this.parents.get(at)) {
      found.push(at);
      if (at === undefined) return found;
    }
  }

  /** What of a frame's own things holds a node; nothing if the node stands outside. */
  private holder(id: string, frame: Inside): string | undefined {
    const path = [id, ...this.around(id)],
      at = path.indexOf(frame, 1);
    return at < 1 ? undefined : path[at - 1];
  }

  /** The edges that join two things of a frame: their numbers, and these things. */
  private edgesOf(frame: Inside): [edge: number, from: string, to: string][] {
    return this.drawn.edges.flatMap(([a, b], edge): [number, string, string][] => {
      const from = this.holder(a, frame),
        to = this.holder(b, frame);
      return from !== undefined && to !== undefined && from !== to ? [[edge, from, to]] : [];
    });
  }

  /** What uses an array that stands outside of the frame, in order: so time goes to the right here, too. */
  private order(frame: Inside): [string, string][] {
    if (frame === undefined) return [];
    const users = new Map<string, string>(),
      found: [string, string][] = [];
    for (const [a, b] of this.drawn.edges) {
      const [from, to] = [this.holder(a, frame), this.holder(b, frame)];
      if ((from === undefined) === (to === undefined)) continue;
      const user = (from ?? to)!,
        outside = from === undefined ? a : b,
        before = users.get(outside);
      if (before !== undefined && before !== user) found.push([before, user]);
      users.set(outside, user);
    }
    return found;
  }

  /** From places in a frame to places in the picture. */
  private shift(frame: Inside, x: number, y: number): void {
    for (const { id, ...one } of this.within(frame)) {
      const box = this.boxes.get(id)!;
      box.x += x;
      box.y += y;
      if (!("detail" in one)) this.shift(id, box.x - box.width / 2 + PAD, box.y - box.height / 2 + TITLE);
    }
    for (const [edge] of this.edgesOf(frame)) for (const point of this.lines[edge]!) [point.x, point.y] = [point.x + x, point.y + y];
  }

  /** Lead both ends of a line from the frames at which it ends to the nodes that are meant. */
  private meet(line: Point[], from: Box, to: Box): void {
    if (!holds(from, line[0]!)) line.unshift(...this.way(from, line[0]!, -6));
    if (!holds(to, line.at(-1)!)) line.push(...this.way(to, line.at(-1)!, 6).reverse());
  }

  /** From a box to a point, below the nodes that stand between them; beside the middle of the box where it does so. */
  private way(box: Box, point: Point, beside: number): Point[] {
    const begin = side(box, point),
      nodes = this.drawn.nodes.map(({ id }) => this.boxes.get(id)!),
      between = nodes.filter((one) => one !== box && crosses(begin, point, one));
    if (!between.length) return [begin];
    const y = Math.max(...[box, ...between].map((one) => one.y + one.height / 2)) + PAD / 2 + beside / 4,
      far = between.map((one) => one.x + (Math.sign(point.x - box.x) * one.width) / 2),
      x = point.x > box.x ? Math.max(...far) : Math.min(...far);
    return [
      { x: box.x + beside, y: box.y + box.height / 2 },
      { x: box.x + beside, y },
      { x, y },
    ];
  }
}

function holds({ x, y, width, height }: Box, point: Point): boolean {
  return Math.abs(point.x - x) <= width / 2 + 1 && Math.abs(point.y - y) <= height / 2 + 1;
}

/** Whether a line between two points, more across than down, runs through a box. */
function crosses(a: Point, b: Point, { x, y, width, height }: Box): boolean {
  const [left, right] = a.x < b.x ? [a, b] : [b, a];
  if (x + width / 2 <= left.x || x - width / 2 >= right.x) return false;
  const at = Math.min(Math.max(x, left.x), right.x),
    there = left.y + ((right.y - left.y) * (at - left.x)) / (right.x - left.x || 1);
  return Math.abs(there - y) < height / 2;
}

/** The middle of the left or right side of a box, whichever looks to a point. */
function side({ x, y, width }: Box, point: Point): Point {
  return { x: point.x > x ? x + width / 2 : x - width / 2, y };
}

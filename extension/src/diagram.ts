// Which nodes, frames and edges a tape has as a graph: launches and arrays, scopes as frames, what repeats once.

import { count } from "./dom";
import { type Group, type Part, shown, tree } from "./fold";
import type { Store } from "./store";

/** With more launches than these after folding, those of one kernel at one line become one. */
export const MOST_LAUNCHES = 150;

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
  enclose(drawn);
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

function title({ name, times, begun = 0 }: Group): string {
  if (times === 1) return name;
  return begun ? `${times} times, and its first ${begun} once more` : `${times} times`;
}

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

/** Put each array into the innermost frame in which everything stands that uses it. */
function enclose(drawn: Drawn): void {
  const parents = new Map([...drawn.frames, ...drawn.nodes].map((one) => [one.id, one.parent]));
  const around = (id: string | undefined): string[] => (id === undefined ? [] : [...around(parents.get(id)), id]);
  const paths = new Map<string, string[]>();
  for (const [from, to] of drawn.edges) {
    const [array, user] = from.startsWith("m") ? [from, to] : [to, from];
    const path = around(parents.get(user)), known = paths.get(array) ?? path;
    const apart = known.findIndex((frame, i) => frame !== path[i]);
    paths.set(array, apart < 0 ? known : known.slice(0, apart));
  }
  for (const node of drawn.nodes) if (paths.has(node.id)) node.parent = paths.get(node.id)!.at(-1);
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


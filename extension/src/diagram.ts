// Which nodes, frames and edges a tape has as a graph: launches and arrays, scopes as frames, what repeats once.

import { count } from "./dom";
import { type Group, type Part, shown, standIns, tree } from "./fold";
import type { Store } from "./store";

/** With more launches than these after folding, what is done to other arrays in turn is folded, too. */
const FEW_LAUNCHES = 24;

/** With more launches than these even so, those of one kernel at one line become one. */
export const MOST_LAUNCHES = 100;

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
  /** The node that stands for a record, and for a memory. */
  launch(record: number): string;
  array(memory: number): string;
}

/** Which nodes and edges a tape has. */
export function graphOf(store: Store): Drawn {
  const { records, steps, scopes } = store.data;
  const exact = tree(store.length, scopes, (record) => records[record]!);
  if ([...shown(exact)].length <= FEW_LAUNCHES) return drawnOf(store, exact);
  const alike = tree(store.length, scopes, (record) => steps[records[record]!]![0]);
  return [...shown(alike)].length <= MOST_LAUNCHES ? drawnOf(store, alike) : crowd(store);
}

function drawnOf(store: Store, parts: Part[]): Drawn {
  const stands = standIns(parts, store.length),
    memories = merged(store, stands);
  const drawn: Drawn = {
    nodes: [],
    frames: [],
    edges: [],
    note: "",
    launch: (record) => `r${stands[record]}`,
    array: (memory) => `m${memories[memory]}`,
  };
  place(store, parts, undefined, drawn);
  connect(store, [...shown(parts)], memories, drawn);
  enclose(drawn);
  return drawn;
}

/** The array that is drawn for each memory: where a launch stands for others, its arrays stand for theirs. */
function merged(store: Store, stands: number[]): number[] {
  const over = store.data.memories.map((_, memory) => memory);
  const find = (memory: number): number => {
    while (over[memory] !== memory) memory = over[memory] = over[over[memory]!]!;
    return memory;
  };
  stands.forEach((stand, record) => {
    if (stand === record || store.data.records[stand] === store.data.records[record]) return;
    const [ours, theirs] = [store.step(stand), store.step(record)];
    for (const side of ["reads", "writes"] as const) {
      ours[side].forEach(([, array], i) => {
        const pair = [store.memoryOf(array), store.memoryOf(theirs[side][i]![1])].map(find);
        over[Math.max(...pair)] = Math.min(...pair);
      });
    }
  });
  return over.map((_, memory) => find(memory));
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

function connect(store: Store, records: number[], memories: number[], drawn: Drawn): void {
  const used = new Set<number>(),
    edges = new Map<string, [string, string]>();
  for (const record of records) {
    const step = store.step(record);
    const join = (array: number, edge: (memory: string) => [string, string]) => {
      const memory = memories[store.memoryOf(array)]!,
        pair = edge(`m${memory}`);
      used.add(memory);
      edges.set(pair.join(), pair);
    };
    for (const [, array] of step.reads) join(array, (memory) => [memory, `r${record}`]);
    for (const [, array] of step.writes) join(array, (memory) => [`r${record}`, memory]);
  }
  const all = new Map<number, number[]>([...used].map((memory) => [memory, []]));
  memories.forEach((stand, memory) => all.get(stand)?.push(memory));
  for (const [memory, group] of all) drawn.nodes.push({ id: `m${memory}`, ...described(store, memory, group), memory });
  drawn.edges.push(...edges.values());
}

/** An array, or the first and the last of those for which it stands. */
function described(store: Store, memory: number, group: number[]): { label: string; detail: string } {
  const mark = group.some((one) => store.hasGradient(one)) ? " ∇" : "",
    name = store.name(memory);
  if (group.length === 1) return { label: name + mark, detail: store.layout(store.firstArray(memory)) };
  const last = store.name(group.at(-1)!);
  return { label: (name === last ? name : `${name} … ${last}`) + mark, detail: count(group.length, "array") };
}

/** Put each array into the innermost frame in which everything stands that uses it. */
function enclose(drawn: Drawn): void {
  const parents = new Map([...drawn.frames, ...drawn.nodes].map((one) => [one.id, one.parent]));
  const around = (id: string | undefined): string[] => (id === undefined ? [] : [...around(parents.get(id)), id]);
  const paths = new Map<string, string[]>();
  for (const [from, to] of drawn.edges) {
    const [array, user] = from.startsWith("m") ? [from, to] : [to, from];
    const path = around(parents.get(user)),
      known = paths.get(array) ?? path;
    const apart = known.findIndex((frame, i) => frame !== path[i]);
    paths.set(array, apart < 0 ? known : known.slice(0, apart));
  }
  for (const node of drawn.nodes) if (paths.has(node.id)) node.parent = paths.get(node.id)!.at(-1);
}

/** A tape on which too much is different: kernels at their lines, and the parameters through which they meet. */
function crowd(store: Store): Drawn {
  const launch = (record: number) => `c${store.step(record).title}@${store.step(record).place}`;
  const counts = new Map<string, { record: number; times: number }>();
  const roles = new Map<number, string>(),
    edges = new Map<string, [string, string]>();
  for (let record = 0; record < store.length; record++) {
    const step = store.step(record),
      key = launch(record);
    const known = counts.get(key);
    if (known) known.times++;
    else counts.set(key, { record, times: 1 });
    for (const [sides, into] of [
      [step.reads, true],
      [step.writes, false],
    ] as const) {
      for (const [parameter, array] of sides) {
        const memory = store.memoryOf(array);
        if (!roles.has(memory)) roles.set(memory, `a${parameter}@${key}`);
        const pair: [string, string] = into ? [roles.get(memory)!, key] : [key, roles.get(memory)!];
        edges.set(pair.join("|"), pair);
      }
    }
  }
  const nodes: Node[] = [...counts].map(([id, { record, times }]) => ({
    id,
    label: store.step(record).title,
    detail: count(times, "launch", "launches"),
    record,
  }));
  const arrays = new Map<string, number>();
  for (const role of roles.values()) arrays.set(role, (arrays.get(role) ?? 0) + 1);
  for (const [id, times] of arrays) nodes.push({ id, label: id.slice(1, id.indexOf("@")), detail: count(times, "array") });
  const note =
    "This tape is long and hardly repeats itself: launches of one kernel at one line are drawn as one, arrays by the parameter that took them first.";
  return { nodes, frames: [], edges: [...edges.values()], note, launch, array: (memory) => roles.get(memory) ?? "" };
}

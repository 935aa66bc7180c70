// A tape as a tree: scopes are groups, and what follows itself is shown once.

import type { Others } from "./protocol";

/** How many parts at most are looked at as one repeated sequence. */
const LONGEST_PERIOD = 64;

export interface Group {
  name: string;
  parts: Part[];
  times: number;
}
/** A record by its number, or a group. */
export type Part = number | Group;

/** The tree of `length` records; records with equal keys do the same. */
export function tree(length: number, scopes: Others["scopes"], key: (record: number) => number): Part[] {
  return folded(grouped(scopes, 0, length), key);
}

function grouped(scopes: Others["scopes"], begin: number, end: number): Part[] {
  const inside = scopes.filter(([, from, to]) => begin <= from && from < to && to <= end);
  if (!inside.length) return Array.from({ length: end - begin }, (_, i) => begin + i);
  const parts: Part[] = [];
  let position = begin;
  while (position < end) {
    const starting = inside.filter(([, from]) => from === position);
    if (!starting.length) {
      parts.push(position++);
      continue;
    }
    // Of scopes that begin together the one that was closed last is the outermost.
    const outer = starting.reduce((one, other) => (other[2] >= one[2] ? other : one));
    parts.push({ name: outer[0], parts: grouped(inside.filter((one) => one !== outer), outer[1], outer[2]), times: 1 });
    position = outer[2];
  }
  return parts;
}

function folded(parts: Part[], key: (record: number) => number): Part[] {
  const inner = parts.map((part) => (typeof part === "number" ? part : { ...part, parts: folded(part.parts, key) }));
  const marks = inner.map((part) => mark(part, key));
  const found: Part[] = [];
  let position = 0;
  while (position < inner.length) {
    const [period, times] = repetition(marks, position);
    if (times === 1) found.push(inner[position]!);
    else found.push({ name: "", parts: inner.slice(position, position + period), times });
    position += period * times;
  }
  return found;
}

function mark(part: Part, key: (record: number) => number): string {
  if (typeof part === "number") return String(key(part));
  return `${JSON.stringify(part.name)}*${part.times}[${part.parts.map((one) => mark(one, key)).join()}]`;
}

/** The shortest period from `start` on that covers most, and how often it occurs. */
function repetition(marks: string[], start: number): [period: number, times: number] {
  let best: [number, number] = [1, 1];
  const longest = Math.min(LONGEST_PERIOD, Math.floor((marks.length - start) / 2));
  for (let period = 1; period <= longest; period++) {
    let end = start + period;
    while (end < marks.length && marks[end] === marks[end - period]) end++;
    const times = Math.floor((end - start) / period);
    if (times > 1 && period * times > best[0] * best[1]) best = [period, times];
  }
  return best;
}

/** The records that a tree shows. */
export function* shown(parts: Part[]): Generator<number> {
  for (const part of parts) {
    if (typeof part === "number") yield part;
    else yield* shown(part.parts);
  }
}

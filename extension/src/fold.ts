// A tape as a tree: scopes are groups, and what follows itself is shown once.

import type { Growing } from "./protocol";

/** How many parts at most are looked at as one repeated sequence. */
const LONGEST_PERIOD = 64;

export interface Group {
  name: string;
  parts: Part[];
  times: number;
  /** How many of its parts stand behind it once more, at an end at which the next time has begun. */
  begun?: number;
}
/** A record by its number, or a group. */
export type Part = number | Group;

/** The tree of `length` records; records with equal keys do the same. */
export function tree(length: number, scopes: Growing["scopes"], key: (record: number) => number): Part[] {
  return folded(grouped(scopes, length), marker(key));
}

/** Scopes as groups, whatever is in none by itself. */
function grouped(scopes: Growing["scopes"], length: number): Part[] {
  // Of scopes that begin together the one that was closed last is the outermost.
  const order = scopes
    .map((scope, i) => ({ scope, i }))
    .filter(({ scope: [, begin, end] }) => begin < end)
    .sort((one, other) => one.scope[1] - other.scope[1] || other.scope[2] - one.scope[2] || other.i - one.i);
  let next = 0;
  const within = (begin: number, end: number): Part[] => {
    const parts: Part[] = [];
    for (let position = begin; position < end;) {
      const [name, from, to] = order[next]?.scope ?? ["", end, end];
      if (from > position) parts.push(position++);
      else {
        next++;
        if (from < position || to > end) continue;
        parts.push({ name, parts: within(from, to), times: 1 });
        position = to;
      }
    }
    return parts;
  };
  return within(0, length);
}

function folded(parts: Part[], mark: (part: Part) => number): Part[] {
  const inner = parts.map((part) => (typeof part === "number" ? part : { ...part, parts: folded(part.parts, mark) }));
  const marks = inner.map(mark);
  const found: Part[] = [];
  let position = 0;
  while (position < inner.length) {
    const [period, times] = repetition(marks, position);
    const begun = times === 1 ? 0 : beginning(marks, position + period * times, period);
    if (times === 1) found.push(inner[position]!);
    else found.push({ name: "", parts: inner.slice(position, position + period), times, ...(begun ? { begun } : {}) });
    position += period * times + begun;
  }
  return found;
}

/** A number for each part, equal for parts that do the same: there are many, and they are compared often. */
function marker(key: (record: number) => number): (part: Part) => number {
  const groups = new Map<string, number>();
  const mark = (part: Part): number => {
    if (typeof part === "number") return key(part);
    const text = `${JSON.stringify(part.name)}*${part.times}+${part.begun ?? 0}[${part.parts.map(mark).join()}]`;
    if (!groups.has(text)) groups.set(text, -1 - groups.size);
    return groups.get(text)!;
  };
  return mark;
}

/** The shortest period from `start` on that covers most, and how often it occurs. */
function repetition(marks: number[], start: number): [period: number, times: number] {
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

/** How many marks are left, if they all go on with what came a period before. */
function beginning(marks: number[], from: number, period: number): number {
  const left = marks.length - from;
  return left < period && marks.slice(from).every((mark, i) => mark === marks[from - period + i]) ? left : 0;
}

/** The records that a tree shows. */
export function* shown(parts: Part[]): Generator<number> {
  for (const part of parts) {
    if (typeof part === "number") yield part;
    else yield* shown(part.parts);
  }
}

/** For each record the one that a tree shows in its place. */
export function standIns(parts: Part[], length: number): number[] {
  const found: number[] = [];
  const walk = (part: Part): void => {
    if (typeof part === "number") {
      found.push(found.length);
      return;
    }
    const start = found.length;
    const ends = part.parts.map((one) => (walk(one), found.length)),
      period = found.length - start;
    const begun = part.begun ? ends[part.begun - 1]! - start : 0;
    for (let more = period * (part.times - 1) + begun; more > 0; more--) found.push(found[found.length - period]!);
  };
  parts.forEach(walk);
  if (found.length !== length) throw new Error(`a tree of ${found.length} records in place of ${length}`);
  return found;
}

// What the Python side sends (kernelab/views/digest.py), and what a host of the widget offers.

export type Line = [place: string, text: string];

/** What records have in common that do the same; `reads` and `writes` are names of parameters. */
export interface Kind {
  title: string;
  kind: "launch" | "other";
  place: string;
  grid?: number[];
  device?: string;
  reads: string[];
  writes: string[];
}

/** A kind with the numbers of the arrays that it is done to. */
export interface Step extends Omit<Kind, "reads" | "writes"> {
  reads: [string, number][];
  writes: [string, number][];
}

export interface Clash {
  outcome: "saved" | "tainted" | "refused";
  read: Line;
  wrote: Line;
}

export interface Overwrite extends Clash {
  clash: number;
  reader: number;
  /** -1: no record wrote, but a line outside of the tape. */
  writer: number;
  array: number;
  bytes: number;
  affects: number[];
}

export interface Finding {
  code: string;
  message: string;
  hint: string;
  at: Line;
  related: [message: string, place: string, text: string][];
}

export type Norm = number | string;
/** Behind an iteration of a loop, `where` names that, and the array is -1. */
export type SweepStep = [record: number, norms: [array: number, norm: Norm][], where?: string];

/** The parts that only grow while an epoch lasts. */
export interface Growing {
  memories: [name: string, bytes: number, gradient: boolean][];
  layouts: [dtype: string, shape: number[]][];
  arrays: [memory: number, layout: number][];
  kinds: Kind[];
  steps: [kind: number, reads: number[], writes: number[]][];
  records: number[];
  times: number[];
  clashes: Clash[];
  overwrites: [clash: number, reader: number, writer: number, array: number, bytes: number, affects: number[]][];
  /** Begins anew where `sweeps` changes. */
  sweep: SweepStep[];
  scopes: [name: string, begin: number, end: number][];
  /** What memories are called; of several names of one, the last counts. */
  names: [memory: number, name: string][];
}

export interface Others {
  findings: Finding[];
  sweeps: number;
}

export type News = { epoch: number; from: Partial<Record<keyof Growing, number>> } & Partial<Growing> & Partial<Others>;

export type Question =
  | { ask: "measure" }
  | { ask: "array" | "record"; number: number }
  | { ask: "thread"; number: number; thread: number }
  | { ask: "element"; number: number; index: number[] };

/** What Python sends beside the snapshot. */
export interface Message {
  op?: string;
  news?: News;
  id?: string;
  html?: string;
  version?: number;
}

/** What the front-end sends. */
export type Asked =
  { op: "settle" } | { op: "hello" } | ({ op: "ask"; id: string } & Question) | { op: "slide"; values: Record<string, number> };

/** A number that a reader sets. */
export interface Slider {
  name: string;
  low: number;
  high: number;
  value: number;
}

/** The part of the anywidget model that is used. */
export interface Model {
  get(key: "snapshot"): string;
  on(event: "change:snapshot", callback: () => void): void;
  on(event: "msg:custom", callback: (message: Message) => void): void;
  off(event: "change:snapshot", callback: () => void): void;
  off(event: "msg:custom", callback: (message: Message) => void): void;
  send(content: Asked): void;
  widget_manager?: unknown;
}

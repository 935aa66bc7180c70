// What the Python side sends (kernelab/views/digest.py), and what a host of the widget offers.

export type Line = [place: string, text: string];

export interface Step {
  title: string;
  kind: "launch" | "other";
  place: string;
  grid?: number[];
  /** Names of parameters, and numbers of arrays. */
  reads: [string, number][];
  writes: [string, number][];
}

export interface Overwrite {
  reader: number;
  /** -1: no record wrote, but a line outside of the tape. */
  writer: number;
  array: number;
  outcome: "saved" | "tainted" | "refused";
  bytes: number;
  affects: number[];
  read: Line;
  wrote: Line;
}

export interface Finding {
  code: string;
  message: string;
  hint: string;
  at: Line;
  related: [message: string, place: string, text: string][];
}

export type Norm = number | string;
export type SweepStep = [record: number, norms: [array: number, norm: Norm][]];

/** The parts that only grow while an epoch lasts. */
export interface Growing {
  memories: [name: string, bytes: number, gradient: boolean][];
  arrays: [memory: number, dtype: string, shape: number[]][];
  steps: Step[];
  records: number[];
  times: number[];
  overwrites: Overwrite[];
}

export interface Others {
  scopes: [name: string, begin: number, end: number][];
  findings: Finding[];
  sweep: SweepStep[];
  names: Record<string, string>;
}

export type News = { epoch: number; from: Partial<Record<keyof Growing, number>> } & Partial<Growing> &
  Partial<Others>;

/** The part of the anywidget model that is used. */
export interface Model {
  get(key: "snapshot"): string;
  on(event: string, callback: (...args: any[]) => void): void;
  off(event: string, callback: (...args: any[]) => void): void;
  send(content: unknown): void;
  widget_manager?: unknown;
}

// What the extension and the kernel say to each other (kernelab/jupyter/channel.py); `protocol/` has examples that
// the tests of both sides read.

import type { ReadonlyJSONValue as JSONValue } from "@lumino/coreutils";
import type { Position } from "./cells";

export const VERSION = 1;
/** The target of the comm that the extension opens. */
export const TARGET = "kernelab";
/** The target of the comm by which a kernel says that it has loaded kernelab. */
export const READY = "kernelab.ready";

export interface Edit {
  start: Position;
  end: Position;
  text: string;
}

export interface Fix {
  title: string;
  edits: Edit[];
}

export interface Diagnostic {
  severity: "error" | "warning" | "information";
  start: Position;
  end: Position;
  message: string;
  /** The text beside the caret, then hints, then related places. */
  notes: string[];
  fixes: Fix[];
}

export const MARKS = ["read", "written", "added", "saved", "zero", "cost"] as const;

export interface Mark {
  line: number;
  kind: (typeof MARKS)[number];
  text: string;
}

export interface ArrayFacts {
  name: string;
  shape: number[];
  dtype: string;
  device: string;
  requires_grad: boolean;
  norm: number | string | null;
  grad_norm: number | string | null;
  /** HTML. */
  picture: string | null;
}

/** The language of each form, as `%%kernel --show` names them. */
export const FORMS = { adjoint: "python", tangent: "python", textbook: "python", cpp: "C++", cuda: "C++", ptx: "", sass: "" } as const;
export type Form = keyof typeof FORMS;

export interface Requests {
  check: { text: string; cell: string };
  hover: { text: string; position: Position };
  marks: { text: string; cell: string };
  forms: { text: string; form: Form };
  arrays: object;
  tape: object;
  checks: object;
  /** `line` is that of the cursor. */
  code: { command: "check-kernel" | "check-tape" | "trace-thread"; text: string; line: number };
  where: { label: string; line: number };
  state: object;
}

export interface Replies {
  check: { diagnostics: Diagnostic[]; names: string[] };
  hover: { start?: Position; end?: Position; markdown?: string };
  marks: { marks: Mark[] };
  /** `lines` has the line of the source behind each line; not `whole` where a part of the cell has a mistake. */
  forms: { text: string; lines: (number | null)[]; whole?: boolean };
  /** `more` is how many are left out, `style` the CSS of all pictures. */
  arrays: { arrays: ArrayFacts[]; more: number; style: string };
  /** The forms of a tape by MIME type. */
  tape: { name: string; forms: Record<string, JSONValue> };
  checks: { checks: Checked[] };
  code: { code?: string; why?: string };
  where: Partial<Place>;
  /** `launches` are those of the tape, if there is one. */
  state: {
    device: string;
    compiler: string | null;
    checked: string | null;
    launches: number | null;
    problems: Warning[];
    warnings: number;
  };
}

export type Kind = keyof Requests;

/** A line of a cell, with its text when it ran. */
export interface Place {
  cell: string | null;
  /** "Cell In[3]" */
  label: string;
  line: number;
  text: string;
  /** Which one it was of the lines with its text, and how many these were. */
  same: [number: number, of: number];
}

export interface Checked extends Place {
  verdict: string;
  passed: boolean;
}

export interface Warning extends Place {
  event: "warning";
  key: number;
  /** "overwritten", "not finite", or the code of another mistake of a run. */
  kind: string;
  message: string;
  others: Place[];
}

/** "ended" is the page's own word: the kernel is gone, or begins anew. */
export type Event = { event: "ready" | "state" | "ended" } | Warning | { event: "mended"; key: number };

export type Request = { [K in Kind]: { version: number; id: number; kind: K } & Requests[K] }[Kind];
export type Reply = { version: number; id: number } & ({ error: string } | Replies[Kind]);

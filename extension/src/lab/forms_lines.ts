// Which lines of a form come from a line of the source.

import type { Replies } from "./messages";

/** Their numbers, from 0. */
export const linesOf = (lines: Replies["forms"]["lines"], source: number): number[] =>
  lines.flatMap((from, number) => (from === source ? [number] : []));

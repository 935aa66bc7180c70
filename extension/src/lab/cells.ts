// Which cells are kernelab's, and where a place of a message stands in an editor.

import type { Text } from "@codemirror/state";
import type { Place } from "./messages";

/** A line and a column, from 0, in UTF-16 code units. */
export type Position = [line: number, column: number];

/** Whether the text of a cell begins with the magic. */
export const isKernelCell = (text: string): boolean => /^\s*%%kernel\b/.test(text);

/** The same for an editor, of which only the beginning is read. */
export const holdsKernels = (text: Text): boolean => isKernelCell(text.sliceString(0, 200));

/** The offset of a position; one behind the end of a line or of the text is moved to that end. */
export function offset(text: Text, [line, column]: Position): number {
  if (line >= text.lines) return text.length;
  const found = text.line(Math.max(0, line) + 1);
  return Math.min(found.from + Math.max(0, column), found.to);
}

/** The position of an offset. */
export function position(text: Text, at: number): Position {
  const line = text.lineAt(at);
  return [line.number - 1, at - line.from];
}

/**
 * Where a line that ran stands by now: it has its place among the lines with its text, or is where it was, edited since;
 * null where there are fewer lines.
 */
export function lineNow(
  lines: string[],
  { line, text, same: [number, of] = [0, 1] }: Pick<Place, "line" | "text"> & Partial<Place>,
): { line: number; isEdited: boolean } | null {
  const found = lines.flatMap((one, at) => (one.trim() === text.trim() ? [at] : [])),
    at = found.length === of ? found[number]! : line;
  return at < lines.length ? { line: at, isEdited: !found.includes(at) } : null;
}

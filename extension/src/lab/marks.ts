// Marks beside the lines of a kernel cell: what is read, written, added to, kept for the backward pass, or has no derivative.

import { type EditorState, type Extension, RangeSet, StateEffect, StateField, type Text } from "@codemirror/state";
import { type EditorView, gutter, GutterMarker } from "@codemirror/view";
import { html } from "../dom";
import { asking } from "./asking";
import { type Mark, MARKS } from "./messages";

export type Ask = (text: string) => Promise<Mark[] | null>;

const LETTERS: Record<Mark["kind"], string> = {
  read: "r",
  written: "w",
  added: "+",
  saved: "s",
  zero: "0",
  cost: "%",
};

/** All marks of a line. */
class Marker extends GutterMarker {
  constructor(readonly marks: Mark[]) {
    super();
  }
  override eq(other: Marker): boolean {
    return JSON.stringify(this.marks) === JSON.stringify(other.marks);
  }
  override toDOM(): HTMLElement {
    const words = this.marks.map(({ text }) => text).join("\n");
    const letters = MARKS.flatMap((kind) => {
      const first = this.marks.find((one) => one.kind === kind),
        letter = kind === "cost" ? (/^\d+%/.exec(first?.text ?? "")?.[0] ?? "ms") : LETTERS[kind];
      return first ? [html("span", { class: `kernelab-mark kernelab-mark-${kind}`, "aria-hidden": "true" }, letter)] : [];
    });
    return html("span", { title: words, role: "img", "aria-label": words }, ...letters);
  }
}

const setMarks = StateEffect.define<Mark[]>();

/** The marks of an editor; they move with the text until there are newer ones. */
export const marksField = StateField.define<RangeSet<Marker>>({
  create: () => RangeSet.empty,
  update: (marks, { changes, effects, newDoc }) =>
    effects.reduce((known, one) => (one.is(setMarks) ? placed(newDoc, one.value) : known), marks.map(changes)),
});

function placed(doc: Text, marks: Mark[]): RangeSet<Marker> {
  const byLine = new Map<number, Mark[]>();
  for (const mark of marks) if (mark.line < doc.lines) byLine.set(mark.line, [...(byLine.get(mark.line) ?? []), mark]);
  return RangeSet.of(
    [...byLine].map(([line, of]) => new Marker(of).range(doc.line(line + 1).from)),
    true,
  );
}

/** What the marks of the cursor's line say. */
export function marksAtCursor(state: EditorState): string[] {
  const found: string[] = [],
    { from } = state.doc.lineAt(state.selection.main.head);
  state.field(marksField, false)?.between(from, from, (_, __, { marks }) => void found.push(...marks.map(({ text }) => text)));
  return found;
}

/** What `ask` says of the lines, asked after `delay()` milliseconds; while nobody answers what is known stays. */
export function marks(ask: Ask, delay: () => number): Extension {
  const show = (view: EditorView, doc: Text, found: Mark[] | null) => {
    const isOther = found && !RangeSet.eq([view.state.field(marksField)], [placed(doc, found)]);
    if (isOther) view.dispatch({ effects: setMarks.of(found) });
  };
  return [
    marksField,
    asking(ask, delay, show),
    gutter({ class: "kernelab-gutter", side: "after", markers: ({ state }) => state.field(marksField) }),
  ];
}

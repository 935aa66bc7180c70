// What is wrong in a kernel cell, underlined while one types, with fixes to apply.

import { diagnosticCount, type Diagnostic as Lint, forEachDiagnostic, linter, nextDiagnostic, setDiagnostics } from "@codemirror/lint";
import type { ChangeSpec, EditorState, Extension, Text } from "@codemirror/state";
import * as codemirror from "@codemirror/view";
import { EditorView } from "@codemirror/view";
import { html } from "../dom";
import { asking } from "./asking";
import { offset } from "./cells";
import type { Diagnostic, Fix } from "./messages";

export type Check = (text: string) => Promise<Diagnostic[] | null>;

const SEVERITY = { error: "error", warning: "warning", information: "info" } as const;

/** What `check` says of the text, asked after `delay` milliseconds. */
export function diagnostics(check: Check, delay: number): Extension {
  const show = (view: EditorView, doc: Text, found: Diagnostic[] | null) => {
    const lints = (found ?? []).map((one) => lint(doc, one));
    if (lints.length || diagnosticCount(view.state)) view.dispatch(setDiagnostics(view.state, lints));
  };
  return [linter(null), asking(check, () => delay, show)];
}

/** A diagnostic as CodeMirror has it. */
export function lint(doc: Text, { severity, start, end, message, notes, fixes }: Diagnostic): Lint {
  const [from, to] = shown(doc, offset(doc, start), offset(doc, end));
  return {
    from,
    to,
    severity: SEVERITY[severity],
    source: "kernelab",
    message: [message, ...notes].join("\n"),
    renderMessage: () => html("div", { class: "kernelab-message" }, html("b", {}, message), ...notes.map((note) => html("div", {}, note))),
    actions: fixes.map((fix) => ({ name: fix.title, apply: (view: EditorView) => apply(view, fix) })),
  };
}

/** What is underlined where a place is empty: the character beside it. */
function shown(doc: Text, from: number, to: number): [number, number] {
  if (from < to) return [from, to];
  const line = doc.lineAt(from);
  return from < line.to ? [from, from + 1] : [Math.max(line.from, from - 1), from];
}

function apply(view: EditorView, { title, edits }: Fix): void {
  const { doc } = view.state;
  const changes: ChangeSpec = edits.map(({ start, end, text }) => ({ from: offset(doc, start), to: offset(doc, end), insert: text }));
  view.dispatch({ changes, userEvent: "input.fix", effects: EditorView.announce.of(title) });
  view.focus();
}

/** Select what is wrong next, from the beginning behind the last; whether there is another. */
export function selectNext(view: EditorView): boolean {
  const { main } = view.state.selection,
    found: [from: number, to: number][] = [];
  forEachDiagnostic(view.state, (_, from, to) => found.push([from, to]));
  const [anchor, head] = found.find(([from]) => from > main.to) ?? found[0] ?? [main.from, main.to];
  if (anchor === main.from && head === main.to) return false;
  view.dispatch({ selection: { anchor, head }, scrollIntoView: true });
  return true;
}

/** The same with the message in a tooltip, for which the CodeMirror of JupyterLab 4.4 is too old. */
export const nextProblem = "activateHover" in codemirror ? nextDiagnostic : selectNext;

/** The diagnostics in the line of the cursor, those at the cursor first. */
export function atCursor(state: EditorState): Lint[] {
  const { head } = state.selection.main,
    line = state.doc.lineAt(head),
    found: [near: boolean, lint: Lint][] = [];
  forEachDiagnostic(state, (one, from, to) => {
    if (from <= line.to && to >= line.from) found.push([from <= head && head <= to, { ...one, from, to }]);
  });
  return found.sort(([a], [b]) => Number(b) - Number(a)).map(([, one]) => one);
}

/** The fixes that may be applied in the line of the cursor. */
export function fixesAtCursor(view: EditorView): { title: string; apply: () => void }[] {
  return atCursor(view.state).flatMap(({ from, to, actions }) =>
    (actions ?? []).map((one) => ({ title: one.name, apply: () => one.apply(view, from, to) })),
  );
}

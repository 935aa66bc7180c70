import { forEachDiagnostic } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { diagnostics, fixesAtCursor, lint, selectNext } from "../src/lab/diagnostics";
import { refresh, whileKernels } from "../src/lab/kernel_cells";
import type { Diagnostic } from "../src/lab/messages";
import { examples } from "./examples";
import { sight, withSight } from "./sight";

const NAME: Diagnostic = {
  severity: "error",
  start: [2, 4],
  end: [2, 8],
  message: "the name sine is not known here",
  notes: ["hint: did you mean sin?"],
  fixes: [{ title: "write sin", edits: [{ start: [2, 4], end: [2, 8], text: "sin" }] }],
};
const TEXT = "%%kernel\ndef f(x: float):\n    sine(x)";
let view: EditorView;
beforeEach(() => void vi.useFakeTimers());
afterEach(() => view?.destroy());
withSight();

/** An editor, what was checked of it, and a way to answer the oldest question. */
function edited(doc: string) {
  const checked: string[] = [],
    waiting: ((found: Diagnostic[] | null) => void)[] = [];
  const check = (text: string) => new Promise<Diagnostic[] | null>((resolve) => (checked.push(text), waiting.push(resolve)));
  view = new EditorView({
    state: EditorState.create({ doc, extensions: whileKernels(doc, () => diagnostics(check, 1)) }),
    parent: document.body,
  });
  const answer = async (found: Diagnostic[] | null) => {
    waiting.shift()!(found);
    await vi.advanceTimersByTimeAsync(0);
  };
  return { checked, answer };
}

function underlined(): string[] {
  const found: string[] = [];
  forEachDiagnostic(view.state, (one, from, to) => found.push(`${one.severity} ${view.state.sliceDoc(from, to)}`));
  return found;
}

test("a kernel cell is checked, what is wrong underlined, and its fix applied at the cursor", async () => {
  const { checked, answer } = edited(TEXT);
  vi.advanceTimersByTime(1);
  await answer([NAME]);
  expect([checked, underlined()]).toEqual([[TEXT], ["error sine"]]);
  expect(fixesAtCursor(view)).toEqual([]);
  view.dispatch({ selection: { anchor: TEXT.length } });
  const [fix] = fixesAtCursor(view);
  expect(fix?.title).toBe("write sin");
  fix!.apply();
  expect(view.state.doc.line(3).text).toBe("    sin(x)");
});

test("the next problem is selected, and behind the last the first; the only one is already", async () => {
  const { answer } = edited(TEXT);
  vi.advanceTimersByTime(1);
  expect(selectNext(view)).toBe(false);
  const selected = () => (selectNext(view) ? view.state.sliceDoc(view.state.selection.main.from, view.state.selection.main.to) : null);
  await answer([NAME]);
  expect([selected(), selected()]).toEqual(["sine", null]);
  view.dispatch({ effects: refresh.of(null) });
  vi.advanceTimersByTime(1);
  await answer([NAME, { ...NAME, start: [1, 9], end: [1, 14] }]);
  expect([selected(), selected(), selected()]).toEqual(["float", "sine", "float"]);
});

test("an answer about an older text is dropped", async () => {
  const { answer } = edited(TEXT);
  vi.advanceTimersByTime(1);
  view.dispatch({ changes: { from: TEXT.length, insert: "\n" } });
  await answer([NAME]);
  expect(underlined()).toEqual([]);
});

test("a cell of Python is not checked, until it begins with the magic", async () => {
  const { checked } = edited(TEXT.slice(1));
  vi.advanceTimersByTime(1);
  expect(checked).toEqual([]);
  view.dispatch({ changes: { from: 0, insert: "%" } });
  vi.advanceTimersByTime(1);
  expect(checked).toEqual([TEXT]);
});

test("what is out of sight is asked about once, when it comes into sight", async () => {
  sight(false);
  const { checked, answer } = edited(TEXT);
  vi.advanceTimersByTime(1);
  view.dispatch({ effects: refresh.of(null) });
  vi.advanceTimersByTime(1);
  expect(checked).toEqual([]);
  sight(true);
  expect(checked).toEqual([TEXT]);
  sight(true);
  view.dispatch({ effects: refresh.of(null) });
  vi.advanceTimersByTime(1);
  expect(checked).toEqual([TEXT, TEXT]);
  await answer([NAME]);
  expect(underlined()).toEqual([]);
  await answer([NAME]);
  expect(underlined()).toEqual(["error sine"]);
});

test("a place without an extent shows the character beside it", () => {
  const doc = EditorState.create({ doc: TEXT }).doc;
  const place = (start: [number, number]) => lint(doc, { ...NAME, start, end: start });
  expect([place([2, 4]), place([0, 8]), place([9, 9])].map(({ from, to }) => doc.sliceString(from, to))).toEqual(["s", "l", ")"]);
});

const checks = examples.flatMap(([name, { request, reply }]) =>
  "text" in request && "diagnostics" in reply ? [[name, request.text, reply.diagnostics] as const] : [],
);

test.each(checks)("the fixes of %s change the text, and the message is shown as text", async (_, text, found) => {
  const { answer } = edited(text);
  vi.advanceTimersByTime(1);
  await answer([...found]);
  expect(underlined()).toHaveLength(found.length);
  for (const one of found) {
    const shown = lint(view.state.doc, one);
    expect(shown.renderMessage!(view).textContent).toContain(one.message);
    for (const fix of shown.actions ?? []) {
      const before = view.state.doc.toString();
      fix.apply(view, shown.from, shown.to);
      expect(view.state.doc.toString()).not.toBe(before);
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: before } });
    }
  }
});

import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { afterEach, expect, test, vi } from "vitest";
import { timed } from "../src/lab/asking";
import { linesOf } from "../src/lab/forms_lines";
import { marks, marksField } from "../src/lab/marks";
import type { Mark } from "../src/lab/messages";
import { examples } from "./examples";
import { withSight } from "./sight";

withSight();
let view: EditorView;
afterEach(() => view?.destroy());

/** "line: texts" of each marked line. */
function marked(): string[] {
  const found: string[] = [];
  view.state
    .field(marksField)
    .between(
      0,
      view.state.doc.length,
      (from, _, { marks }) => void found.push(`${view.state.doc.lineAt(from).number - 1}: ${marks.map(({ text }) => text).join(", ")}`),
    );
  return found;
}

function edited(doc: string, answer: (text: string) => Promise<Mark[] | null>): Promise<void> {
  return new Promise((heard) => {
    const ask = (text: string) => answer(text).finally(() => setTimeout(heard, 0));
    view = new EditorView({ state: EditorState.create({ doc, extensions: marks(ask, () => 0) }), parent: document.body });
  });
}

const READ: Mark = { line: 1, kind: "read", text: "reads x" };

test("the marks of a line stand together, and move with the text", async () => {
  await edited("a\nb\nc", () => Promise.resolve([READ, { line: 1, kind: "added", text: "adds to y" }, { ...READ, line: 9 }]));
  expect(marked()).toEqual(["1: reads x, adds to y"]);
  view.dispatch({ changes: { from: 0, insert: "\n" } });
  expect(marked()).toEqual(["2: reads x, adds to y"]);
});

test("marks of an older text are dropped, and a kernel that does not answer leaves those there are", async () => {
  await edited("a\nb", () => {
    view.dispatch({ changes: { from: 3, insert: "c" } });
    return Promise.resolve([READ]);
  });
  expect(marked()).toEqual([]);
});

test("marks wait as long as the last check says at each key", async () => {
  vi.useFakeTimers();
  const check = timed((text) => new Promise<string | null>((resolve) => setTimeout(() => resolve(text || null), text ? 70 : 200))),
    asked: string[] = [];
  const ask = (text: string) => {
    asked.push(text);
    return Promise.resolve([]);
  };
  const extensions = marks(ask, () => Math.max(40, 2 * check.took()));
  view = new EditorView({ state: EditorState.create({ doc: "a", extensions }), parent: document.body });
  await vi.advanceTimersByTimeAsync(40);
  expect(asked).toEqual(["a"]);
  const answer = check.ask("b");
  await vi.advanceTimersByTimeAsync(70);
  expect(await answer).toBe("b");
  const none = check.ask("");
  await vi.advanceTimersByTimeAsync(200);
  expect(await none).toBeNull();
  view.dispatch({ changes: { from: 1, insert: "b" } });
  await vi.advanceTimersByTimeAsync(139);
  expect(asked).toEqual(["a"]);
  await vi.advanceTimersByTimeAsync(1);
  expect(asked).toEqual(["a", "ab"]);
});

const known = examples.flatMap(([name, { request, reply }]) =>
  "text" in request && "marks" in reply ? [[name, request.text, reply.marks] as const] : [],
);

test.each(known)("every mark of %s is shown", async (_, text, found) => {
  await edited(text, () => Promise.resolve(found));
  expect(marked()).toEqual(found.map(({ line, text }) => `${line}: ${text}`));
});

test("a line of the source leads to each line that comes from it", () => {
  expect(linesOf([2, 2, null, 5, 2], 2)).toEqual([0, 1, 4]);
  expect(linesOf([null], 0)).toEqual([]);
});

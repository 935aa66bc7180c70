import { nullTranslator } from "@jupyterlab/translation";
import { ChangeSet, EditorState } from "@codemirror/state";
import { expect, test } from "vitest";
import { lineNow } from "../src/lab/cells";
import { decorated, saidOf } from "../src/lab/warnings";
import { warnings } from "./examples";

const trans = nullTranslator.load("kernelab");

/** "line: words" of each line with a warning. */
function shown(text: string): string[] {
  const { doc } = EditorState.create({ doc: text }),
    found: string[] = [];
  decorated(
    doc,
    warnings.flatMap((one) => saidOf(one, trans)),
    trans,
  ).between(0, doc.length, (from, _, { spec }) => {
    if (spec.widget) found.push(`${doc.lineAt(from).number - 1}: ${spec.widget.toDOM().textContent.slice(2)}`);
  });
  return found;
}

test("a warning stands at each of its lines, and says where the text is another by now", () => {
  const [warning] = warnings,
    [other] = warning!.others;
  const lines = Array.from({ length: Math.max(warning!.line, other!.line) + 1 }, () => "");
  lines[warning!.line] = `    ${warning!.text}`;
  lines[other!.line] = "edited";
  const words = {
    [warning!.line]: warning!.message,
    [other!.line]: `edited since: ${warning!.label}, line ${warning!.line + 1}: ${warning!.message}`,
  };
  expect(shown(lines.join("\n"))).toEqual(Object.entries(words).map(([line, said]) => `${line}: ${said}`));
  expect(shown("one line")).toEqual([]);
});

test("a line is found where lines have been inserted above it, unless it may be another with the same text", () => {
  const first = { line: 1, text: "f()", same: [0, 2] as [number, number] };
  expect(lineNow(["f()", "g()", "f()"], { ...first, line: 0 })).toEqual({ line: 0, isEdited: false });
  expect(lineNow(["", "", "  f()", "g()", "f()"], first)).toEqual({ line: 2, isEdited: false });
  expect(lineNow(["", "f(1)", "g()", "f()"], first)).toEqual({ line: 1, isEdited: true });
  expect(lineNow([""], first)).toBeNull();
});

test("a warning stays below its line while lines are typed above and below it, and while it is edited", () => {
  const { doc } = EditorState.create({ doc: "\n\n\n\nx.fill_(3.0)\ny" }),
    [warning] = warnings;
  const said = [{ ...warning!, message: "words" }];
  let known = decorated(doc, said, trans),
    text = doc;
  const after = (from: number, insert: string) => {
    const changes = ChangeSet.of({ from, insert }, text.length);
    text = changes.apply(text);
    known = decorated(text, said, trans, known.map(changes));
    const found: string[] = [];
    known.between(0, text.length, (at, _, { spec }) => {
      if (spec.widget) found.push(`${text.lineAt(at).number - 1}: ${spec.widget.toDOM().textContent.slice(2)}`);
    });
    return found;
  };
  expect(after(0, "\n")).toEqual(["5: words"]);
  expect(after(text.line(6).to, "\nz = 1")).toEqual(["5: words"]);
  expect(after(text.line(6).to, "  # edited")).toEqual(["5: edited since: words"]);
  expect(after(0, "\n")).toEqual(["6: edited since: words"]);
});

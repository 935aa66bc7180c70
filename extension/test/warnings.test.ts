import { nullTranslator } from "@jupyterlab/translation";
import { EditorState } from "@codemirror/state";
import { expect, test } from "vitest";
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

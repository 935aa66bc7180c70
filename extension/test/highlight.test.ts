import { python } from "@codemirror/lang-python";
import { ensureSyntaxTree } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { expect, test } from "vitest";
import { holdsKernels, isKernelCell, offset, position } from "../src/lab/cells";
import { highlighted } from "../src/lab/highlight";

const state = (doc: string) => EditorState.create({ doc, extensions: python() });

/** "class: text" of each decoration but that of the line. */
function colours(doc: string): string[] {
  const one = state(doc),
    tree = ensureSyntaxTree(one, doc.length, 60_000)!;
  const found = highlighted(one, 0, doc.length, tree).filter(({ from, to }) => from < to);
  return found.map(({ from, to, value }) => `${(value.spec.class as string).replace("kernelab-", "")}: ${doc.slice(from, to)}`);
}

test("a cell is one of kernels where its first line that is not blank begins with the magic", () => {
  expect(["%%kernel", "\n %%kernel --quiet\nx", "%%kernels", "x\n%%kernel", "# %%kernel"].map(isKernelCell)).toEqual([
    true,
    true,
    false,
    false,
    false,
  ]);
  expect(holdsKernels(state("%%kernel\n").doc)).toBe(true);
});

test("the magic line shows which options there are", () => {
  expect(colours("\n%%kernel --show adjoint --quite")).toEqual(["magic: %%kernel", "option: --show", "unknown-option: --quite"]);
});

test("types and called operations are coloured, names that look alike are not", () => {
  const body =
    "%%kernel\ndef exp(x: array[float], length: vec3):\n    # sin(x)\n    x[tid()] = kl.sin(x.sin) + foo.vec3 + 'vec3(' + length + cos(length)";
  expect(colours(body).slice(1)).toEqual([
    "type: array",
    "type: float",
    "type: vec3",
    "operation: tid",
    "operation: sin",
    "operation: cos",
  ]);
  expect(colours(body.slice(9))).toEqual([]);
});

test("a place counts UTF-16 units, and one outside of the text moves to the nearest end", () => {
  const { doc } = state("a\n𝛼 = b\n");
  expect([offset(doc, [1, 3]), offset(doc, [0, 9]), offset(doc, [9, 0])]).toEqual([5, 1, doc.length]);
  expect(position(doc, 5)).toEqual([1, 3]);
});

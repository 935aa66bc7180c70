// Colours of a kernel cell: its magic line with options, and the types and operations of the language.

import { syntaxTree } from "@codemirror/language";
import { type EditorState, type Range, RangeSet } from "@codemirror/state";
import { Decoration, type DecorationSet, type EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { holdsKernels } from "./cells";
import words from "./words.json";

const OPTIONS = new Set(words.options),
  TYPES = new Set(words.types);
const OPERATIONS = new Set(words.operations),
  PREFIXES = new Set(words.prefixes);

const MAGIC_LINE = Decoration.line({ class: "kernelab-magic-line" });
const mark = (name: string) => Decoration.mark({ class: `kernelab-${name}` });
const MAGIC = mark("magic"),
  OPTION = mark("option"),
  UNKNOWN = mark("unknown-option"),
  TYPE = mark("type"),
  OPERATION = mark("operation");

/** The decorations of a part of a kernel cell. */
export function highlighted(state: EditorState, from: number, to: number, tree = syntaxTree(state)): Range<Decoration>[] {
  if (!holdsKernels(state.doc)) return [];
  const first = magicLine(state),
    found = from <= first.to ? ofMagic(first.from, first.text) : [];
  tree.iterate({
    from: Math.max(from, first.to),
    to,
    enter: ({ name, from, to }) => {
      if (from <= first.to || (name !== "VariableName" && name !== "PropertyName")) return;
      const word = state.sliceDoc(from, to),
        kind = TYPES.has(word) ? TYPE : OPERATIONS.has(word) ? OPERATION : null;
      if (kind && isLanguage(state, name, from, to, kind === TYPE)) found.push(kind.range(from, to));
    },
  });
  return found;
}

function magicLine(state: EditorState) {
  let number = 1;
  while (!state.doc.line(number).text.trim()) number++;
  return state.doc.line(number);
}

function ofMagic(start: number, text: string): Range<Decoration>[] {
  const found = [MAGIC_LINE.range(start)];
  for (const { 0: word, index } of text.matchAll(/\S+/g)) {
    const kind = word === "%%kernel" ? MAGIC : !word.startsWith("-") ? null : OPTIONS.has(word.split("=")[0]!) ? OPTION : UNKNOWN;
    if (kind) found.push(kind.range(start + index, start + index + word.length));
  }
  return found;
}

/** A property counts behind a prefix; an operation that is not called is a name that a reader chose. */
function isLanguage(state: EditorState, node: string, from: number, to: number, isType: boolean): boolean {
  const before = state.sliceDoc(Math.max(0, from - 40), from),
    prefix = /(\w+)\s*\.\s*$/.exec(before)?.[1];
  if (node === "PropertyName" && !PREFIXES.has(prefix ?? "")) return false;
  const after = state.sliceDoc(to, to + 20);
  return isType ? !/^\s*[:=](?!=)/.test(after) : /^\s*\(/.test(after) && !/\bdef\s+$/.test(before);
}

function decorate({ state, visibleRanges }: EditorView): DecorationSet {
  return RangeSet.of(
    visibleRanges.flatMap(({ from, to }) => highlighted(state, from, to)),
    true,
  );
}

/** The extension of an editor. */
export const highlight = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;
    constructor(view: EditorView) {
      this.decorations = decorate(view);
    }
    update({ docChanged, viewportChanged, startState, state, view }: ViewUpdate) {
      if (docChanged || viewportChanged || syntaxTree(startState) !== syntaxTree(state)) this.decorations = decorate(view);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

// An editor's extensions that are there while its cell is one of kernels, and cost nothing while it is not.

import { Compartment, EditorState, type Extension, StateEffect } from "@codemirror/state";
import { holdsKernels, isKernelCell } from "./cells";

/** What is known of a cell may have changed although its text has not. */
export const refresh = StateEffect.define<null>();

/** The settings have changed. */
export const rebuild = StateEffect.define<null>();

/** What `make` returns, while the editor's text begins with the magic; `text` is what it begins with. */
export function whileKernels(text: string, make: () => Extension): Extension {
  const held = new Compartment();
  const follow = EditorState.transactionExtender.of(({ startState, newDoc, docChanged, effects }) => {
    const is = docChanged ? holdsKernels(newDoc) : holdsKernels(startState.doc);
    const hasChanged = docChanged && is !== holdsKernels(startState.doc);
    if (!hasChanged && !effects.some((one) => one.is(rebuild))) return null;
    return { effects: held.reconfigure(is ? make() : []) };
  });
  return [held.of(isKernelCell(text) ? make() : []), follow];
}

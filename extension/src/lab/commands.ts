// The commands of the palette and the menu; shortcuts and the menu's order stand in schema/plugin.json.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { type ICommandPalette, InputDialog } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { nextDiagnostic } from "@codemirror/lint";
import { EditorView } from "@codemirror/view";
import { holdsKernels } from "./cells";
import { atCursor, fixesAtCursor } from "./diagnostics";
import { editorOf, type Links } from "./links";

export interface Command {
  label: string;
  run: () => unknown;
}

/** Offer commands while a notebook is in front. */
export function offer(app: JupyterFrontEnd, links: Links, palette: ICommandPalette | null, commands: Record<string, Command>): void {
  for (const [name, { label, run }] of Object.entries(commands)) {
    const command = `kernelab:${name}`;
    app.commands.addCommand(command, { label, execute: run, isEnabled: () => links.tracker.currentWidget !== null });
    palette?.addItem({ command, category: "kernelab" });
  }
}

/** The editor of the active cell, if that is one of kernels. */
export function inFront(links: Links): EditorView | null {
  const cell = links.tracker.activeCell,
    view = cell && editorOf(cell);
  return view && holdsKernels(view.state.doc) ? view : null;
}

/** What leads through the problems of a cell. */
export function ofProblems(links: Links, trans: TranslationBundle): Record<string, Command> {
  return {
    "next-problem": {
      label: trans.__("Next problem in this kernel cell"),
      run: () => {
        const view = inFront(links);
        if (!view || !nextDiagnostic(view)) return;
        view.focus();
        const [problem] = atCursor(view.state);
        if (problem) view.dispatch({ effects: EditorView.announce.of(problem.message) });
      },
    },
    "apply-fix": {
      label: trans.__("Apply a fix at the cursor"),
      run: async () => {
        const view = inFront(links),
          fixes = view ? fixesAtCursor(view) : [];
        const titles = fixes.map(({ title }) => title);
        const chosen = titles.length < 2 ? titles[0] : (await InputDialog.getItem({ title: trans.__("Which fix?"), items: titles })).value;
        fixes.find(({ title }) => title === chosen)?.apply();
      },
    },
  };
}

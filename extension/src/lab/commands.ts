// The commands of the palette and the menu; shortcuts and the menu's order stand in schema/plugin.json.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { type ICommandPalette, InputDialog, type ISessionContext, type ISessionContextDialogs, Notification } from "@jupyterlab/apputils";
import { NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { TranslationBundle } from "@jupyterlab/translation";
import { nextDiagnostic } from "@codemirror/lint";
import { EditorView } from "@codemirror/view";
import { holdsKernels } from "./cells";
import { atCursor, fixesAtCursor } from "./diagnostics";
import { editorOf, type Links } from "./links";
import type { Requests } from "./messages";

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

/** What checks and traces: the kernel offers the code, which runs in a cell of its own, where it can be changed. */
export function ofChecks(links: Links, trans: TranslationBundle): Record<string, Command> {
  const offered = (command: Requests["code"]["command"]) => async () => {
    const panel = links.tracker.currentWidget,
      state = inFront(links)?.state;
    const request = {
      command,
      text: state?.doc.toString() ?? "",
      line: state ? state.doc.lineAt(state.selection.main.head).number - 1 : 0,
    };
    const got = await links.of(panel)?.ask("code", request);
    if (panel && got?.code) await runBelow(panel, got.code);
    else Notification.warning(got?.why ?? nobody(trans), { autoClose: 5000 });
  };
  return {
    "check-kernel": { label: trans.__("Check the gradients of this kernel"), run: offered("check-kernel") },
    "check-tape": { label: trans.__("Check the tape"), run: offered("check-tape") },
    "trace-thread": { label: trans.__("Trace a thread of this kernel"), run: offered("trace-thread") },
  };
}

export const nobody = (trans: TranslationBundle): string => trans.__("Nobody answers: run %load_ext kernelab.");

/** Run code in the cell below: one that holds it already, else a new one. */
async function runBelow({ content, sessionContext }: NotebookPanel, code: string): Promise<void> {
  if (content.widgets[content.activeCellIndex + 1]?.model.sharedModel.getSource() === code) content.activeCellIndex++;
  else {
    NotebookActions.insertBelow(content);
    content.activeCell?.model.sharedModel.setSource(code);
  }
  await NotebookActions.run(content, sessionContext);
}

const CHECKED = "%load_ext kernelab\nimport kernelab\nkernelab.config.check = 'full'\ndel kernelab";

/** Begin anew with a kernel in which every launch is checked. */
export function ofCheckedMode(links: Links, dialogs: ISessionContextDialogs | null, trans: TranslationBundle): Record<string, Command> {
  const restart = (context: ISessionContext) => (dialogs ? dialogs.restart(context) : context.restartKernel().then(() => true));
  const run = async () => {
    const context = links.tracker.currentWidget?.sessionContext;
    if (!context || !(await restart(context))) return;
    const done = await context.session?.kernel?.requestExecute({ code: CHECKED, store_history: false }).done;
    if (done?.content.status !== "ok") Notification.error(trans.__("This kernel has no kernelab"));
  };
  return { "restart-checked": { label: trans.__("Restart the kernel in checked mode…"), run } };
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

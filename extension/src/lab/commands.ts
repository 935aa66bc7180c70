// What the commands of the palette and the menu do.

import { InputDialog, type ISessionContext, type ISessionContextDialogs, Notification } from "@jupyterlab/apputils";
import { NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { TranslationBundle } from "@jupyterlab/translation";
import { EditorView } from "@codemirror/view";
import { holdsKernels } from "./cells";
import { atCursor, fixesAtCursor, nextProblem } from "./diagnostics";
import { editorOf, type Links } from "./links";
import { marksAtCursor } from "./marks";
import type { Requests } from "./messages";
import type { Commands } from "./places";

/** The editor of the active cell, if that is one of kernels. */
export function inFront(links: Links): EditorView | null {
  const cell = links.tracker.activeCell,
    view = cell && editorOf(cell);
  return view && holdsKernels(view.state.doc) ? view : null;
}

/** What checks and traces: the kernel offers the code, which runs in a cell of its own, where it can be changed. */
export function ofChecks(links: Links, trans: TranslationBundle): Pick<Commands, "check-kernel" | "check-tape" | "trace-thread"> {
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
    "check-kernel": offered("check-kernel"),
    "check-tape": offered("check-tape"),
    "trace-thread": offered("trace-thread"),
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
export function ofCheckedMode(
  links: Links,
  dialogs: ISessionContextDialogs | null,
  trans: TranslationBundle,
): Pick<Commands, "restart-checked"> {
  const restart = (context: ISessionContext) => (dialogs ? dialogs.restart(context) : context.restartKernel().then(() => true));
  const run = async () => {
    const context = links.tracker.currentWidget?.sessionContext;
    if (!context || !(await restart(context))) return;
    const done = await context.session?.kernel?.requestExecute({ code: CHECKED, store_history: false }).done;
    if (done?.content.status !== "ok") Notification.error(trans.__("This kernel has no kernelab"));
  };
  return { "restart-checked": run };
}

/** What leads through the problems of a cell, and tells of its lines without a mouse. */
export function ofProblems(links: Links, trans: TranslationBundle): Pick<Commands, "next-problem" | "apply-fix" | "tell-marks"> {
  return {
    "tell-marks": () => {
      const view = inFront(links);
      if (view) Notification.info(marksAtCursor(view.state).join("\n") || trans.__("This line has no marks."), { autoClose: 8000 });
    },
    "next-problem": () => {
      const view = inFront(links);
      if (!view) return;
      if (nextProblem(view)) view.focus();
      const [problem] = atCursor(view.state);
      if (problem) view.dispatch({ effects: EditorView.announce.of(problem.message) });
    },
    "apply-fix": async () => {
      const view = inFront(links),
        fixes = view ? fixesAtCursor(view) : [];
      const titles = fixes.map(({ title }) => title);
      const chosen = titles.length < 2 ? titles[0] : (await InputDialog.getItem({ title: trans.__("Which fix?"), items: titles })).value;
      fixes.find(({ title }) => title === chosen)?.apply();
    },
  };
}

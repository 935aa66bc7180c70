// The JupyterLab extension: what `%%kernel` cells show while one writes them.

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, ISessionContextDialogs, WidgetTracker } from "@jupyterlab/apputils";
import type { CodeEditor } from "@jupyterlab/codeeditor";
import { EditorExtensionRegistry, IEditorExtensionRegistry, IEditorLanguageRegistry } from "@jupyterlab/codemirror";
import { ILauncher } from "@jupyterlab/launcher";
import { INotebookTracker } from "@jupyterlab/notebook";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { type Command, inFront, ofChecks, ofCheckedMode, offer, ofProblems } from "./commands";
import { diagnostics } from "./diagnostics";
import { Forms } from "./forms";
import { highlight } from "./highlight";
import { hover } from "./hover";
import { rebuild, whileKernels } from "./kernel_cells";
import { openLesson } from "./lessons";
import { Links } from "./links";
import { marks } from "./marks";
import type { Kind, Replies, Requests } from "./messages";
import { PLUGIN, type Settings, settingsOf } from "./settings";
import { NABLA, Side } from "./side";
import { Status } from "./status";
import { Warnings } from "./warnings";

/** Marks may come later than what is wrong, in milliseconds. */
const MARKS_AFTER = 150;

/** What the editor of a kernel cell gets. */
function ofCell(links: Links, settings: Settings, rendermime: IRenderMimeRegistry, model: CodeEditor.IModel): Extension {
  const ask = async <K extends Kind>(kind: K, request: Omit<Requests[K], "cell">): Promise<Replies[K] | null> => {
    const found = links.find(model),
      cell = found?.cell.model.id;
    return (await links.of(found?.panel ?? null)?.ask(kind, { ...request, cell } as Requests[K], `${kind} ${cell}`)) ?? null;
  };
  const check = async (text: string) => (await ask("check", { text }))?.diagnostics ?? null;
  const known = async (text: string) => (await ask("marks", { text }))?.marks ?? null;
  const moved = EditorView.updateListener.of(({ view, docChanged, selectionSet, focusChanged }) => {
    if (docChanged || ((selectionSet || focusChanged) && view.hasFocus)) links.moved.emit({ view, hasChanged: docChanged });
  });
  const beside = settings.marks ? marks(known, MARKS_AFTER + settings.delay) : [];
  return [highlight, diagnostics(check, settings.delay), hover((request) => ask("hover", request), rendermime), beside, moved];
}

/** The view of forms beside the notebook, made when it is first asked for, and again with the layout; Notebook 7 has room for one document. */
function ofForms(
  app: JupyterFrontEnd,
  links: Links,
  languages: IEditorLanguageRegistry,
  restorer: ILayoutRestorer | null,
  hasMain: boolean,
  trans: TranslationBundle,
): Command {
  let forms: Forms | null = null;
  const tracker = new WidgetTracker<Forms>({ namespace: "kernelab-forms" });
  void restorer?.restore(tracker, { command: "kernelab:show-forms", name: ({ id }) => id });
  const run = async () => {
    const view = inFront(links),
      panel = links.tracker.currentWidget;
    if (!forms || forms.isDisposed) {
      forms = new Forms(links, languages, trans);
      if (hasMain) app.shell.add(forms, "main", { mode: "split-right", ref: panel?.id, activate: false });
      else app.shell.add(forms, "right", { rank: 800 });
      await tracker.add(forms);
    }
    if (!forms.isVisible) app.shell.activateById(forms.id);
    if (view) await forms.follows(view);
  };
  return { label: trans.__("Show the adjoint beside the notebook"), run };
}

/** The panel at the right, and the item of the status bar that opens it. */
function ofSide(
  app: JupyterFrontEnd,
  links: Links,
  warnings: Warnings,
  restorer: ILayoutRestorer | null,
  bar: IStatusBar | null,
  trans: TranslationBundle,
): Command {
  const side = new Side(app, links, warnings, trans);
  app.shell.add(side, "right", { rank: 700 });
  restorer?.add(side, side.id);
  const run = () => app.shell.activateById(side.id),
    item = new Status(links, warnings, trans, run);
  bar?.registerStatusItem("kernelab:status", {
    item,
    align: "left",
    rank: 10,
    isActive: () => item.isActive,
    activeStateChanged: item.activeChanged,
  });
  return { label: trans.__("Show the tape, checks, warnings and arrays"), run };
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: "What cells of kernels show while they are written.",
  autoStart: true,
  requires: [IEditorExtensionRegistry, IEditorLanguageRegistry, INotebookTracker, IRenderMimeRegistry],
  optional: [ISettingRegistry, ICommandPalette, ITranslator, ILayoutRestorer, IStatusBar, ISessionContextDialogs, ILauncher, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    editors: IEditorExtensionRegistry,
    languages: IEditorLanguageRegistry,
    tracker: INotebookTracker,
    rendermime: IRenderMimeRegistry,
    registry: ISettingRegistry | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    bar: IStatusBar | null,
    dialogs: ISessionContextDialogs | null,
    launcher: ILauncher | null,
    lab: ILabShell | null,
  ) => {
    const trans = (translator ?? nullTranslator).load("kernelab");
    const links = new Links(tracker),
      settings = settingsOf(registry, () => links.everywhere(rebuild.of(null)));
    const warnings = new Warnings(links, trans);
    editors.addExtension({
      name: "kernelab",
      factory: ({ inline, model }) =>
        inline
          ? EditorExtensionRegistry.createImmutableExtension([
              warnings.extension(model),
              whileKernels(model.sharedModel.getSource(), () => ofCell(links, settings, rendermime, model)),
            ])
          : null,
    });
    offer(app, links, palette, {
      "show-forms": ofForms(app, links, languages, restorer, lab !== null, trans),
      "show-side": ofSide(app, links, warnings, restorer, bar, trans),
      ...ofChecks(links, trans),
      ...ofCheckedMode(links, dialogs, trans),
      ...ofProblems(links, trans),
    });
    app.commands.addCommand("kernelab:lessons", {
      label: trans.__("Lessons of kernelab"),
      caption: trans.__("Copy a lesson on differentiable kernels into this folder, and open it"),
      icon: NABLA,
      execute: ({ cwd }) => openLesson(app, typeof cwd === "string" ? cwd : "", trans),
    });
    launcher?.add({ command: "kernelab:lessons", category: trans.__("Other") });
    palette?.addItem({ command: "kernelab:lessons", category: "kernelab" });
  },
};

export default plugin;

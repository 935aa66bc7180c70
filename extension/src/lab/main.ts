// All that a notebook needs of the extension, loaded with the first one: see index.ts for what is there from the start.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ISessionContextDialogs, WidgetTracker } from "@jupyterlab/apputils";
import type { CodeEditor } from "@jupyterlab/codeeditor";
import type { IEditorLanguageRegistry } from "@jupyterlab/codemirror";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { IStatusBar } from "@jupyterlab/statusbar";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import type { BoxPanel } from "@lumino/widgets";
import { timed } from "./asking";
import { inFront, ofChecks, ofCheckedMode, ofProblems } from "./commands";
import { diagnostics } from "./diagnostics";
import { Forms } from "./forms";
import { highlight } from "./highlight";
import { hover } from "./hover";
import { rebuild, whileKernels } from "./kernel_cells";
import { IN_OUTPUTS, leaveByEscape } from "./leaving";
import { Links } from "./links";
import { marks } from "./marks";
import type { Kind, Replies, Requests } from "./messages";
import type { Commands } from "./places";
import { type Settings, settingsOf } from "./settings";
import { Side } from "./side";
import { Status } from "./status";
import { keepViews } from "./still_views";
import { Warnings } from "./warnings";

/** Marks are asked for this many milliseconds after what is wrong, or this many times the last check: the next waits for them. */
const MARKS_AFTER = 400;
const CHECKS_BEFORE_MARKS = 5;
const LATEST_MARKS = 2000;

/** What of JupyterLab the extension uses. */
export interface Host {
  /** The name of its settings. */
  plugin: string;
  app: JupyterFrontEnd;
  tracker: INotebookTracker;
  languages: IEditorLanguageRegistry;
  rendermime: IRenderMimeRegistry;
  registry: ISettingRegistry | null;
  bar: IStatusBar | null;
  dialogs: ISessionContextDialogs | null;
  trans: TranslationBundle;
  /** The place of the panel at the right. */
  place: BoxPanel;
  /** The views of forms: they come back with the layout. */
  shown: WidgetTracker;
  /** Notebook 7 has room for one document. */
  hasMain: boolean;
}

export interface Main {
  commands: Commands;
  /** What the editor of a code cell gets. */
  extension(model: CodeEditor.IModel): Extension;
}

/** Begin to listen to notebooks and their kernels. */
export function begin(host: Host): Main {
  const { plugin, app, tracker, registry, rendermime, dialogs, trans } = host;
  const links = new Links(tracker),
    settings = settingsOf(registry, plugin, () => links.everywhere(rebuild.of(null)));
  const warnings = new Warnings(links, trans);
  const follow = (panel: NotebookPanel) => {
    keepViews(panel);
    leaveByEscape(app, tracker, panel.node, IN_OUTPUTS);
  };
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, panel) => follow(panel));
  const commands: Commands = {
    "show-forms": ofForms(host, links),
    "show-side": ofSide(host, links, warnings),
    ...ofChecks(links, trans),
    ...ofCheckedMode(links, dialogs, trans),
    ...ofProblems(links, trans),
  };
  const extension = (model: CodeEditor.IModel): Extension => [
    warnings.extension(model),
    whileKernels(model.sharedModel.getSource(), () => ofCell(links, settings, rendermime, model)),
  ];
  return { commands, extension };
}

/** What the editor of a kernel cell gets. */
function ofCell(links: Links, settings: Settings, rendermime: IRenderMimeRegistry, model: CodeEditor.IModel): Extension {
  const ask = async <K extends Kind>(kind: K, request: Omit<Requests[K], "cell">): Promise<Replies[K] | null> => {
    const found = links.find(model),
      cell = found?.cell.model.id;
    return (await links.of(found?.panel ?? null)?.ask(kind, { ...request, cell } as Requests[K], `${kind} ${cell}`)) ?? null;
  };
  const check = timed(async (text) => (await ask("check", { text }))?.diagnostics ?? null);
  const known = async (text: string) => (await ask("marks", { text }))?.marks ?? null;
  const moved = EditorView.updateListener.of(({ view, docChanged, selectionSet, focusChanged }) => {
    if (docChanged || ((selectionSet || focusChanged) && view.hasFocus)) links.moved.emit({ view, hasChanged: docChanged });
  });
  const wait = () => settings.delay + Math.min(Math.max(MARKS_AFTER, CHECKS_BEFORE_MARKS * check.took()), LATEST_MARKS);
  const beside = settings.marks ? marks(known, wait) : [];
  return [highlight, diagnostics(check.ask, settings.delay), hover((request) => ask("hover", request), rendermime), beside, moved];
}

/** The view of forms beside the notebook, made when it is first asked for, and again with the layout. */
function ofForms({ app, languages, trans, shown, hasMain }: Host, links: Links): () => Promise<void> {
  let forms: Forms | null = null;
  return async () => {
    const view = inFront(links),
      panel = links.tracker.currentWidget;
    if (!forms || forms.isDisposed) {
      forms = new Forms(links, languages, trans);
      leaveByEscape(app, links.tracker, forms.node);
      if (hasMain) app.shell.add(forms, "main", { mode: "split-right", ref: panel?.id, activate: false });
      else app.shell.add(forms, "right", { rank: 800 });
      await shown.add(forms);
    }
    if (!forms.isVisible) app.shell.activateById(forms.id);
    if (view) await forms.follows(view);
  };
}

/** The panel at the right, and the item of the status bar that opens it. */
function ofSide({ app, trans, bar, place }: Host, links: Links, warnings: Warnings): () => void {
  place.addWidget(new Side(app, links, warnings, trans));
  leaveByEscape(app, links.tracker, place.node);
  const run = () => app.shell.activateById(place.id),
    item = new Status(links, warnings, trans, run);
  bar?.registerStatusItem("kernelab:status", {
    item,
    align: "left",
    rank: 10,
    isActive: () => item.isActive,
    activeStateChanged: item.activeChanged,
  });
  return run;
}

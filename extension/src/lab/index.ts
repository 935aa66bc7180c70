// The JupyterLab extension: what `%%kernel` cells show while one writes them.
//
// JupyterLab starts with what stands here; the rest (main.ts) is loaded with the first notebook.

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, ISessionContextDialogs, WidgetTracker } from "@jupyterlab/apputils";
import { EditorExtensionRegistry, IEditorExtensionRegistry, IEditorLanguageRegistry } from "@jupyterlab/codemirror";
import { ILauncher } from "@jupyterlab/launcher";
import { INotebookTracker } from "@jupyterlab/notebook";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";
import { nameFields } from "./fields";
import { late } from "./late";
import type { Host, Main } from "./main";
import { NABLA, offer, sidePlace } from "./places";
import { widgets } from "./widgets";

const PLUGIN = "kernelab:plugin";

/** The card of the launcher that opens a lesson. */
function offerLessons(app: JupyterFrontEnd, launcher: ILauncher | null, palette: ICommandPalette | null, trans: TranslationBundle): void {
  const command = "kernelab:lessons";
  app.commands.addCommand(command, {
    label: trans.__("Lessons of kernelab"),
    caption: trans.__("Copy a lesson on differentiable kernels into this folder, and open it"),
    icon: NABLA,
    execute: async ({ cwd }) => (await import("./lessons")).openLesson(app, typeof cwd === "string" ? cwd : "", trans),
  });
  launcher?.add({ command, category: trans.__("Other") });
  palette?.addItem({ command, category: "kernelab" });
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
    const trans = (translator ?? nullTranslator).load("kernelab"),
      place = sidePlace(trans),
      shown = new WidgetTracker({ namespace: "kernelab-forms" });
    const host: Host = {
      plugin: PLUGIN,
      app,
      tracker,
      languages,
      rendermime,
      registry,
      bar,
      dialogs,
      trans,
      place,
      shown,
      hasMain: lab !== null,
    };
    let loaded: Main | null = null,
      loading: Promise<Main> | null = null;
    const main = () => (loading ??= import("./main").then(({ begin }) => (loaded = begin(host))));
    tracker.widgetAdded.connect(() => void main());
    app.shell.add(place, "right", { rank: 700 });
    restorer?.add(place, place.id);
    void restorer?.restore(shown, { command: "kernelab:show-forms", name: ({ id }) => id });
    editors.addExtension({
      name: "kernelab",
      factory: ({ inline, model }) =>
        inline
          ? EditorExtensionRegistry.createImmutableExtension(
              loaded ? loaded.extension(model) : late(main().then(({ extension }) => extension(model))),
            )
          : null,
    });
    const isEnabled = () => tracker.currentWidget !== null;
    offer(app, palette, trans, isEnabled, async () => (await main()).commands);
    offerLessons(app, launcher, palette, trans);
    nameFields(app);
  },
};

export default [plugin, widgets];

// The JupyterLab extension: what `%%kernel` cells show while one writes them.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import type { CodeEditor } from "@jupyterlab/codeeditor";
import { EditorExtensionRegistry, IEditorExtensionRegistry } from "@jupyterlab/codemirror";
import { INotebookTracker } from "@jupyterlab/notebook";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";
import type { Extension } from "@codemirror/state";
import { offer, ofProblems } from "./commands";
import { diagnostics } from "./diagnostics";
import { highlight } from "./highlight";
import { rebuild, whileKernels } from "./kernel_cells";
import { Links } from "./links";
import { PLUGIN, type Settings, settingsOf } from "./settings";

/** What the editor of a kernel cell gets. */
function ofCell(links: Links, settings: Settings, model: CodeEditor.IModel): Extension {
  const check = async (text: string) => {
    const found = links.find(model), cell = found?.cell.model.id ?? "";
    return (await links.of(found?.panel ?? null)?.ask("check", { text, cell }, `check ${cell}`))?.diagnostics ?? null;
  };
  return [highlight, diagnostics(check, settings.delay)];
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: "What cells of kernels show while they are written.",
  autoStart: true,
  requires: [IEditorExtensionRegistry, INotebookTracker],
  optional: [ISettingRegistry, ICommandPalette, ITranslator],
  activate: (app: JupyterFrontEnd, editors: IEditorExtensionRegistry, tracker: INotebookTracker, registry: ISettingRegistry | null, palette: ICommandPalette | null, translator: ITranslator | null) => {
    const links = new Links(tracker), settings = settingsOf(registry, () => links.everywhere(rebuild.of(null)));
    editors.addExtension({
      name: "kernelab",
      factory: ({ inline, model }) =>
        inline ? EditorExtensionRegistry.createImmutableExtension(whileKernels(model.sharedModel.getSource(), () => ofCell(links, settings, model))) : null,
    });
    offer(app, links, palette, ofProblems(links, (translator ?? nullTranslator).load("kernelab")));
  },
};

export default plugin;

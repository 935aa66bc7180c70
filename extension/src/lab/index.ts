// The JupyterLab extension: what `%%kernel` cells show while one writes them.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { EditorExtensionRegistry, IEditorExtensionRegistry } from "@jupyterlab/codemirror";
import { highlight } from "./highlight";

const plugin: JupyterFrontEndPlugin<void> = {
  id: "kernelab:plugin",
  description: "What cells of kernels show while they are written.",
  autoStart: true,
  requires: [IEditorExtensionRegistry],
  activate: (_: JupyterFrontEnd, editors: IEditorExtensionRegistry) => {
    editors.addExtension({
      name: "kernelab",
      factory: ({ inline }) => (inline ? EditorExtensionRegistry.createImmutableExtension([highlight]) : null),
    });
  },
};

export default plugin;

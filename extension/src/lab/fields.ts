// The fields of the settings editor have names for screen readers.

import type { JupyterFrontEnd } from "@jupyterlab/application";

/** JupyterLab writes the name of a field beside it, where no screen reader looks: the field gets it, too. */
export function nameFields({ shell, restored }: JupyterFrontEnd): void {
  const named = new WeakSet<HTMLElement>();
  const look = () => {
    const node = shell.currentWidget?.node;
    if (!node || node.id !== "setting-editor" || named.has(node)) return;
    named.add(node);
    const name = () => {
      for (const field of node.querySelectorAll("[id^='jp-SettingsEditor-kernelab:'][label]:not([aria-label])"))
        field.setAttribute("aria-label", field.getAttribute("label")!);
    };
    new MutationObserver(name).observe(node, { childList: true, subtree: true });
    name();
  };
  shell.currentChanged?.connect(look);
  void restored.then(look);
}

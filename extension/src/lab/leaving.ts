// Escape leads from a view back to the notebook in front.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { INotebookTracker } from "@jupyterlab/notebook";

/** What a notebook shows in outputs, as CSS selects it. */
export const IN_OUTPUTS = ".kl, .klt";

/** Listen for Escape in the views inside of an element, where it means nothing to what has the focus. */
export function leaveByEscape(app: JupyterFrontEnd, tracker: INotebookTracker, element: HTMLElement, views = "*"): void {
  element.addEventListener("keydown", (event) => {
    const panel = tracker.currentWidget,
      isLeft = event.key === "Escape" && !event.defaultPrevented && (event.target as Element).closest(views);
    if (panel && isLeft) app.shell.activateById(panel.id);
  });
}

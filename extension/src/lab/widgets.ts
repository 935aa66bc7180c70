// Tapes and live views where JupyterLab has no anywidget: they are shown by what comes with this extension.
//
// The state of such a widget holds a script, for hosts that have nothing else. Of anywidget's models JupyterLab runs it
// as soon as a notebook is opened, whoever wrote it; these never do.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";

/** States name the version of anywidget that Python had, "~0.11.*", or ours: each finds a version here. */
const VERSIONS = Array.from({ length: 50 }, (_, i) => `0.${i + 9}.0`);

export const widgets: JupyterFrontEndPlugin<void> = {
  id: "kernelab:widgets",
  description: "Shows tapes and live views where anywidget is not installed.",
  autoStart: true,
  activate: async (app: JupyterFrontEnd) => {
    if (app.hasPlugin("anywidget:plugin")) return;
    const base = await import("@jupyter-widgets/base").catch(() => null); // ipywidgets is not installed
    const registry = base && (await app.resolveOptionalService(base.IJupyterWidgetRegistry));
    let made: Promise<object> | undefined; // asked for with each widget
    const exports = () => (made ??= import("./models").then(({ models }) => models(base!)));
    for (const version of VERSIONS) registry?.registerWidget({ name: "anywidget", version, exports });
  },
};

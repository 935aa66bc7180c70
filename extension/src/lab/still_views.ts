// The static form of a live view, where ipywidgets has given its model up: that of a notebook that is opened anew may come later.

import { CodeCell } from "@jupyterlab/cells";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IOutputModel, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { Panel } from "@lumino/widgets";

const WIDGET = "application/vnd.jupyter.widget-view+json";

/** What ipywidgets writes for ever once it has looked for a model for two seconds. */
const LOST = "Error displaying widget: model not found";

/** How often the model is looked for again, in four minutes: JupyterLab may read it after a kernel that is slow to start. */
const TRIES = 11;
const pause = (tried: number) => new Promise((resolve) => setTimeout(resolve, 100 * 2 ** tried));

/** Our views of a notebook are never such an error. */
export function keepViews({ content }: NotebookPanel): void {
  const observer = new MutationObserver((records) => {
    for (const { target } of records)
      if (isLost(target)) for (const cell of content.widgets) if (cell instanceof CodeCell) mend(cell, target);
  });
  observer.observe(content.node, { childList: true, subtree: true });
  content.disposed.connect(() => observer.disconnect());
}

const isLost = (node: Node): boolean =>
  node instanceof HTMLElement && node.classList.contains("jupyter-widgets") && node.textContent === LOST;

function mend({ outputArea }: CodeCell, lost: Node): void {
  const at = outputArea.widgets.findIndex(({ node }) => node.contains(lost)),
    place = [...(outputArea.widgets[at]?.children() ?? [])].find(({ node }) => node === lost);
  if (place instanceof Panel && isOurs(outputArea.model.get(at))) void show(outputArea.model.get(at), place, outputArea.rendermime);
}

function isOurs({ data }: IOutputModel): boolean {
  const form = data["text/html"];
  return typeof form === "string" && form.includes('class="kl ');
}

/** Show the static form, and the live one as soon as its model is found. */
async function show(output: IOutputModel, place: Panel, rendermime: IRenderMimeRegistry): Promise<void> {
  const still = rendermime.createRenderer("text/html");
  await still.renderModel(output);
  place.node.textContent = "";
  place.addWidget(still);
  for (let tried = 0; tried < TRIES && !place.isDisposed; tried++) {
    const live = rendermime.createRenderer(WIDGET);
    await live.renderModel(output);
    if (live.node.textContent === LOST || place.isDisposed) {
      live.dispose();
      await pause(tried);
    } else {
      still.dispose();
      return place.addWidget(live);
    }
  }
}

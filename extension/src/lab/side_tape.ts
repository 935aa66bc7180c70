// The tape of the notebook in front, as its cells show it: the widget, or static forms where there is none.

import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMime } from "@jupyterlab/rendermime";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";
import { html } from "../dom";
import type { Replies } from "./messages";

export class SideTape {
  private readonly title = html("h2");
  private readonly place = html("div", { class: "kernelab-tape" });
  readonly element: HTMLElement;
  private renderer: IRenderMime.IRenderer | null = null;
  private shown = "";

  constructor(private trans: TranslationBundle) {
    this.element = html("section", { "aria-label": trans.__("Tape"), hidden: true }, this.title, this.place);
  }

  /** Show a tape, unless it is there already; nothing where a notebook has none. */
  async show(panel: NotebookPanel | null, got: Replies["tape"] | null): Promise<boolean> {
    const key = got?.name ? JSON.stringify([panel?.id, got.forms["application/vnd.jupyter.widget-view+json"] ?? got.forms]) : "";
    this.element.hidden = !key;
    this.title.textContent = this.trans.__("Tape: %1", got?.name ?? "");
    if (key === this.shown) return false;
    this.shown = key;
    this.renderer?.dispose();
    this.renderer = null;
    if (!panel || !got || !key) return false;
    const { rendermime } = panel.content,
      model = rendermime.createModel({ data: got.forms, trusted: true }); // of a live kernel, never of a file
    this.renderer = rendermime.createRenderer(rendermime.preferredMimeType(model.data, "any") ?? "text/plain");
    Widget.attach(this.renderer, this.place);
    await this.renderer.renderModel(model);
    return true;
  }
}

// The panel at the right: the arrays and the warnings of the notebook in front.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { TranslationBundle } from "@jupyterlab/translation";
import { LabIcon } from "@jupyterlab/ui-components";
import { Widget } from "@lumino/widgets";
import { html } from "../dom";
import type { Links } from "./links";
import type { Place, Replies } from "./messages";
import { arraysShown, type Notebook, replace, warningsShown } from "./side_view";
import type { Warnings } from "./warnings";

const NABLA = new LabIcon({
  name: "kernelab:nabla",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="M2 4h20L12 21.5zM7 7.5l5.3 9.3 5-9.3z"/></svg>',
});

export class Side extends Widget {
  private readonly told = html("p", { class: "kernelab-told", role: "status" });
  private readonly style = html("style");
  private readonly warned = html("div");
  private readonly listed = html("div");
  private readonly closed = new Set<string>();
  private asked = 0;

  constructor(
    private app: JupyterFrontEnd,
    private links: Links,
    private warnings: Warnings,
    private trans: TranslationBundle,
  ) {
    super();
    this.id = "kernelab-side";
    this.addClass("kernelab-side");
    this.title.icon = NABLA;
    this.title.caption = trans.__("kernelab: arrays and warnings");
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", this.title.caption);
    this.node.append(this.style, this.told, this.warned, this.listed);
    links.tracker.currentChanged.connect(() => void this.refresh());
    warnings.changed.connect((_, panel) => panel === this.panel && this.warn());
    links.events.connect((_, { panel, event }) => {
      if (links.of(panel) !== links.of(this.panel)) return;
      if (event.event === "ended") this.draw(null);
      else if (event.event === "ready" || event.event === "state") void this.refresh();
    });
  }

  protected override onAfterShow(): void {
    void this.refresh();
  }

  private get panel(): NotebookPanel | null {
    return this.links.tracker.currentWidget;
  }

  /** Ask about the notebook in front, unless nobody sees the answer. */
  private async refresh(): Promise<void> {
    if (!this.isVisible) return;
    const asked = ++this.asked,
      got = await this.links.of(this.panel)?.ask("arrays", {});
    if (asked === this.asked) this.draw(got ?? null);
  }

  private draw(got: Replies["arrays"] | null): void {
    this.asked++; // answers that are under way are older
    const { trans } = this;
    this.told.textContent = got ? "" : this.panel ? trans.__("Nobody answers: run %load_ext kernelab.") : trans.__("No notebook is open.");
    this.style.textContent = got?.style ?? "";
    replace(this.listed, ...(got ? [arraysShown(got.arrays, got.more, this.closed, trans)] : []));
    this.warned.hidden = !got;
    this.warn();
  }

  private warn(): void {
    const { panel, trans } = this;
    if (panel) replace(this.warned, warningsShown(this.warnings.of(panel), this.notebook(panel), trans));
  }

  private notebook(panel: NotebookPanel): Notebook {
    const cellOf = ({ cell }: Place) => panel.content.widgets.findIndex((one) => one.model.id === cell);
    return {
      textAt: (place) => panel.content.widgets[cellOf(place)]?.model.sharedModel.getSource().split("\n")[place.line] ?? null,
      go: (place) => void this.go(panel, cellOf(place), place.line),
    };
  }

  private async go(panel: NotebookPanel, index: number, line: number): Promise<void> {
    const cell = panel.content.widgets[index];
    this.warn(); // the line may have been edited since
    if (!cell) return;
    this.app.shell.activateById(panel.id);
    panel.content.activeCellIndex = index;
    await panel.content.scrollToItem(index, "auto");
    await cell.ready;
    cell.inputHidden = false;
    panel.content.mode = "edit";
    cell.editor?.setCursorPosition({ line: Math.min(line, cell.editor.lineCount - 1), column: 0 });
    cell.editor?.revealPosition({ line: Math.min(line, cell.editor.lineCount - 1), column: 0 });
  }
}

// The panel at the right: the tape, the checks, the arrays and the warnings of the notebook in front.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import type { Cell } from "@jupyterlab/cells";
import { NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";
import { html } from "../dom";
import { lineNow } from "./cells";
import { nobody } from "./commands";
import type { Links } from "./links";
import type { Place, Replies } from "./messages";
import { SideTape } from "./side_tape";
import { arraysShown, checksShown, type Notebook, replace, warningsShown } from "./side_view";
import type { Warnings } from "./warnings";

/** How long a cell runs before a tape that it makes is looked for, in milliseconds. */
const LOOK = 500;

export class Side extends Widget {
  private readonly told = html("p", { class: "kernelab-told", role: "status" });
  private readonly style = html("style");
  private readonly warned = html("div");
  private readonly checked = html("div");
  private readonly listed = html("div");
  private readonly tape: SideTape;
  private readonly running = new Set<Cell>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly closed = new Set<string>();
  private asked = 0;

  constructor(
    private app: JupyterFrontEnd,
    private links: Links,
    private warnings: Warnings,
    private trans: TranslationBundle,
  ) {
    super();
    this.addClass("kernelab-side");
    this.tape = new SideTape(trans);
    this.node.append(this.style, this.told, this.warned, this.tape.element, this.checked, this.listed);
    (globalThis as { kernelabGo?: (place: string) => void }).kernelabGo = (place) => void this.find(place);
    NotebookActions.executionScheduled.connect((_, { cell }) => {
      this.running.add(cell);
      this.watch();
    });
    NotebookActions.executed.connect((_, { cell }) => {
      this.running.delete(cell);
      this.watch();
    });
    links.changed.connect((_, panel) => panel === this.panel && void this.refresh());
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

  protected override onAfterAttach(): void {
    void this.refresh();
  }

  private get panel(): NotebookPanel | null {
    return this.links.tracker.currentWidget;
  }

  /** Ask about the notebook in front, unless nobody sees the answer. */
  private async refresh(): Promise<void> {
    if (!this.isVisible) return;
    const asked = ++this.asked,
      link = this.links.of(this.panel);
    const [got, tape, checks] = await Promise.all([link?.ask("arrays", {}), link?.ask("tape", {}), link?.ask("checks", {})]);
    if (asked !== this.asked) return;
    this.draw(got ?? null, tape ?? null, checks ?? null);
    this.watch(); // what was answered about the tape may be older than what was shown
  }

  /** While cells run: show the tape that they make as soon as there is one. */
  private watch(): void {
    clearTimeout(this.timer);
    if (this.running.size) this.timer = setTimeout(() => void this.look(), LOOK);
  }

  private async look(): Promise<void> {
    const { panel } = this,
      got = this.isVisible ? await this.links.of(panel)?.ask("tape", {}, "tape of a run") : null;
    const isNew = got && panel === this.panel && (await this.tape.show(panel, got));
    if (!isNew) this.watch();
  }

  private draw(got: Replies["arrays"] | null, tape: Replies["tape"] | null = null, checks: Replies["checks"] | null = null): void {
    this.asked++; // answers that are under way are older
    const { trans, panel } = this;
    void this.tape.show(panel, tape);
    replace(this.checked, ...(panel && checks ? checksShown(checks.checks, this.notebook(panel), trans) : []));
    this.told.textContent = got ? "" : this.panel ? nobody(trans) : trans.__("No notebook is open.");
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
      linesOf: (place) => panel.content.widgets[cellOf(place)]?.model.sharedModel.getSource().split("\n") ?? null,
      go: (place) => void this.go(panel, cellOf(place), place),
    };
  }

  /** Go to a place of the notebook in front, as messages name it. */
  private async find(text: string): Promise<void> {
    const { panel, trans } = this,
      [, label, number] = /^(.*), line (\d+)$/.exec(text) ?? [];
    if (!panel || !label) return;
    const place = await this.links.of(panel)?.ask("where", { label, line: Number(number) - 1 });
    const notebook = this.notebook(panel),
      lines = place?.text === undefined ? null : notebook.linesOf(place as Place),
      now = lines && lineNow(lines, place as Place);
    if (!now) Notification.warning(trans.__("%1 is not in this notebook", text), { autoClose: 3000 });
    else if (now.isEdited) Notification.info(trans.__("%1 was edited since", text), { autoClose: 3000 });
    if (now) notebook.go(place as Place);
  }

  private async go(panel: NotebookPanel, index: number, place: Place): Promise<void> {
    const cell = panel.content.widgets[index];
    this.warn(); // the line may have been edited since
    if (!cell) return;
    this.app.shell.activateById(panel.id);
    panel.content.activeCellIndex = index;
    await panel.content.scrollToItem(index, "auto");
    await cell.ready;
    cell.inputHidden = false;
    panel.content.mode = "edit";
    const lines = cell.model.sharedModel.getSource().split("\n"),
      at = { line: lineNow(lines, place)?.line ?? lines.length - 1, column: 0 };
    cell.editor?.setCursorPosition(at);
    cell.editor?.revealPosition(at);
  }
}

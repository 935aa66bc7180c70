// The item of the status bar: what the notebook in front runs on, and how many warnings are open.

import type { TranslationBundle } from "@jupyterlab/translation";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import { html } from "../dom";
import type { Links } from "./links";
import { stateShown } from "./side_view";
import type { Warnings } from "./warnings";

export class Status extends Widget {
  /** Whether there is something to say is another answer than before. */
  readonly activeChanged = new Signal<this, void>(this);
  isActive = false;
  private readonly button: HTMLButtonElement;

  constructor(
    private links: Links,
    private warnings: Warnings,
    private trans: TranslationBundle,
    open: () => void,
  ) {
    super();
    this.addClass("kernelab-status");
    this.button = html("button", { title: trans.__("kernelab: show arrays and warnings"), click: open });
    this.node.append(this.button);
    links.tracker.currentChanged.connect(this.draw, this);
    warnings.changed.connect(this.draw, this);
  }

  private draw(): void {
    const panel = this.links.tracker.currentWidget,
      state = panel && this.warnings.stateOf(panel);
    if (state) this.button.textContent = stateShown(state, this.warnings.of(panel).length, this.trans);
    if (this.isActive === Boolean(state)) return;
    this.isActive = Boolean(state);
    this.activeChanged.emit();
  }
}

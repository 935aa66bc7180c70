// Which kernel answers for which cell.

import type { CodeEditor } from "@jupyterlab/codeeditor";
import type { Cell } from "@jupyterlab/cells";
import { CodeMirrorEditor } from "@jupyterlab/codemirror";
import { type INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import type { StateEffect } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { Signal } from "@lumino/signaling";
import { refresh } from "./kernel_cells";
import { Link } from "./link";
import type { Event } from "./messages";

export const editorOf = (cell: Cell): EditorView | null => (cell.editor instanceof CodeMirrorEditor ? cell.editor.editor : null);

export class Links {
  /** What a kernel told a notebook. */
  readonly events = new Signal<this, { panel: NotebookPanel; event: Event }>(this);
  /** The cursor of a kernel cell, or its text. */
  readonly moved = new Signal<this, { view: EditorView; hasChanged: boolean }>(this);
  /** A notebook has another kernel. */
  readonly changed = new Signal<this, NotebookPanel>(this);
  private links = new WeakMap<Kernel.IKernelConnection, Link>();

  constructor(readonly tracker: INotebookTracker) {
    tracker.forEach((panel) => this.follow(panel));
    tracker.widgetAdded.connect((_, panel) => this.follow(panel));
    NotebookActions.executed.connect((_, { notebook }) => {
      const panel = tracker.find(({ content }) => content === notebook);
      if (panel) this.refresh(panel);
    });
  }

  /** The link of a notebook, if it has a kernel. */
  of(panel: NotebookPanel | null): Link | null {
    const kernel = panel?.sessionContext.session?.kernel;
    if (!panel || !kernel) return null;
    return this.links.get(kernel) ?? this.make(panel, kernel);
  }

  /** The notebook and the cell with an editor's model. */
  find(model: CodeEditor.IModel): { panel: NotebookPanel; cell: Cell } | null {
    let found: { panel: NotebookPanel; cell: Cell } | null = null;
    this.tracker.forEach((panel) => {
      const cell = panel.content.widgets.find((one) => one.model === model);
      if (cell) found = { panel, cell };
    });
    return found;
  }

  /** The notebook that an editor is part of. */
  panelOf(view: EditorView): NotebookPanel | null {
    return this.tracker.find(({ content }) => content.widgets.some((cell) => editorOf(cell) === view)) ?? null;
  }

  /** Ask anew about each cell of a notebook. */
  refresh(panel: NotebookPanel): void {
    this.tell(panel, refresh.of(null));
  }

  /** Tell every editor of a notebook. */
  tell(panel: NotebookPanel, effects: StateEffect<null>): void {
    for (const cell of panel.content.widgets) editorOf(cell)?.dispatch({ effects });
  }

  /** Say what a screen reader shall hear, from the editor of the cell in front. */
  announce({ content }: NotebookPanel, words: string): void {
    const view = content.activeCell && editorOf(content.activeCell);
    view?.dispatch({ effects: EditorView.announce.of(words) });
  }

  /** Tell every editor of every notebook. */
  everywhere(effect: StateEffect<null>): void {
    this.tracker.forEach((panel) => this.tell(panel, effect));
  }

  private follow(panel: NotebookPanel): void {
    this.of(panel);
    panel.sessionContext.kernelChanged.connect(() => {
      this.of(panel);
      this.refresh(panel);
      this.changed.emit(panel);
    });
  }

  private make(panel: NotebookPanel, kernel: Kernel.IKernelConnection): Link {
    const link = new Link(kernel);
    this.links.set(kernel, link);
    link.events.connect((_, event) => {
      if (event.event === "ready") this.refresh(panel);
      this.events.emit({ panel, event });
    });
    return link;
  }
}

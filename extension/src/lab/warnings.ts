// What the kernel warns of while cells run (an overwrite, a value that is not finite), at each of its lines, until it is mended.

import type { CodeEditor } from "@jupyterlab/codeeditor";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { TranslationBundle } from "@jupyterlab/translation";
import { type Extension, type Range, StateEffect, StateField, type Text } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, ViewPlugin, WidgetType } from "@codemirror/view";
import { Signal } from "@lumino/signaling";
import { html } from "../dom";
import { lineNow } from "./cells";
import type { Links } from "./links";
import type { Place, Replies, Warning } from "./messages";

/** The warning shown at a line. */
export interface Said extends Place {
  message: string;
}

/** The warnings of a notebook may have changed. */
const changed = StateEffect.define<null>();

/** A warning at its own line and at the others. */
export function saidOf({ others, message, ...place }: Warning, trans: TranslationBundle): Said[] {
  const where = trans.__("%1, line %2", place.label, place.line + 1);
  return [{ ...place, message }, ...others.map((other) => ({ ...other, message: `${where}: ${message}` }))];
}

class Words extends WidgetType {
  constructor(private readonly words: string) {
    super();
  }
  override eq(other: Words): boolean {
    return other.words === this.words;
  }
  override toDOM(): HTMLElement {
    return html("div", { class: "kernelab-warning", role: "note" }, `⚠ ${this.words}`);
  }
}

const line = (key: string) => Decoration.line({ class: "kernelab-warned", key });
const keyOf = ({ label, line, message }: Said) => `${label} ${line} ${message}`;

/** The lines that have moved with the text since they were decorated, by the keys of their warnings. */
function moved(doc: Text, known: DecorationSet): Map<string, number> {
  const found = new Map<string, number>();
  known.between(0, doc.length, (from, _, { spec }) => {
    const { key } = spec as { key?: string };
    if (key) found.set(key, doc.lineAt(from).number - 1);
  });
  return found;
}

/** The decorations of a cell, words below their line; a line that has another text by now says so. */
export function decorated(doc: Text, said: Said[], trans: TranslationBundle, known = Decoration.none): DecorationSet {
  if (!said.length) return Decoration.none;
  const lines = doc.toString().split("\n"),
    places = moved(doc, known);
  const found: Range<Decoration>[] = said.flatMap((one) => {
    const key = keyOf(one),
      now = lineNow(lines, { ...one, line: places.get(key) ?? one.line });
    if (!now) return [];
    const at = doc.line(now.line + 1),
      words = now.isEdited ? trans.__("edited since: %1", one.message) : one.message;
    return [line(key).range(at.from), Decoration.widget({ widget: new Words(words), side: 1, block: true }).range(at.to)];
  });
  return Decoration.set(found, true);
}

export class Warnings {
  /** Those of a notebook are others than before. */
  readonly changed = new Signal<this, NotebookPanel>(this);
  private states = new WeakMap<NotebookPanel, Replies["state"]>();
  private open = new WeakMap<NotebookPanel, Map<number, Warning>>();

  constructor(
    private links: Links,
    private trans: TranslationBundle,
  ) {
    links.events.connect((_, { panel, event }) => {
      if (event.event === "ready" || event.event === "state") return void this.load(panel);
      if (event.event === "warning") this.add(panel, [event]);
      else if (event.event === "mended") this.known(panel).delete(event.key);
      else this.forget(panel);
      this.tell(panel);
    });
  }

  /** Those that are open. */
  of(panel: NotebookPanel): Warning[] {
    return [...this.known(panel).values()];
  }

  /** What kernels ran on after the last cell, once the kernel has told. */
  stateOf(panel: NotebookPanel): Replies["state"] | null {
    return this.states.get(panel) ?? null;
  }

  /** The extension of any code cell. */
  extension(model: CodeEditor.IModel): Extension {
    const field = StateField.define<DecorationSet>({
      create: () => Decoration.none,
      update: (known, { changes, docChanged, effects, newDoc }) =>
        docChanged || effects.some((one) => one.is(changed)) ? decorated(newDoc, this.at(model), this.trans, known.map(changes)) : known,
      provide: (of) => EditorView.decorations.from(of),
    });
    // An editor of a cell that was out of sight is made later than the warning.
    const later = ViewPlugin.define((view) => {
      const timer = setTimeout(() => this.at(model).length && view.dispatch({ effects: changed.of(null) }), 0);
      return { destroy: () => clearTimeout(timer) };
    });
    return [field, later];
  }

  private at(model: CodeEditor.IModel): Said[] {
    const found = this.links.find(model);
    return found
      ? this.of(found.panel)
          .flatMap((one) => saidOf(one, this.trans))
          .filter(({ cell }) => cell === found.cell.model.id)
      : [];
  }

  private known(panel: NotebookPanel): Map<number, Warning> {
    const known = this.open.get(panel) ?? new Map<number, Warning>();
    this.open.set(panel, known);
    return known;
  }

  /** Know of warnings; a screen reader hears of those that are new. */
  private add(panel: NotebookPanel, found: Warning[]): void {
    const known = this.known(panel),
      isNew = found.filter(({ key }) => !known.has(key));
    for (const one of found) known.set(one.key, one);
    if (isNew.length) this.links.announce(panel, isNew.map((one) => saidOf(one, this.trans).at(-1)!.message).join("\n"));
  }

  private async load(panel: NotebookPanel): Promise<void> {
    const state = await this.links.of(panel)?.ask("state", {});
    if (!state) return;
    this.states.set(panel, state);
    for (const key of this.known(panel).keys()) if (!state.problems.some((one) => one.key === key)) this.known(panel).delete(key);
    this.add(panel, state.problems);
    this.tell(panel);
  }

  private forget(panel: NotebookPanel): void {
    this.open.delete(panel);
    this.states.delete(panel);
  }

  private tell(panel: NotebookPanel): void {
    this.links.tell(panel, changed.of(null));
    this.changed.emit(panel);
  }
}

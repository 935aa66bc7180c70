// What a kernel cell becomes (adjoint, tangent, C++, CUDA), beside the notebook: the cursor leads in both directions.

import { type IEditorLanguageRegistry, jupyterHighlightStyle, jupyterTheme } from "@jupyterlab/codemirror";
import type { TranslationBundle } from "@jupyterlab/translation";
import { syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView } from "@codemirror/view";
import { Widget } from "@lumino/widgets";
import { html } from "../dom";
import { linesOf } from "./forms_lines";
import { nobody } from "./commands";
import type { Links } from "./links";
import { type Form, FORMS, type Replies } from "./messages";

const LIT = Decoration.line({ class: "kernelab-lit" });

const setLit = StateEffect.define<number[]>();
const lit = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (known, { effects, newDoc }) =>
    effects.reduce(
      (before, one) =>
        one.is(setLit) ? Decoration.set(one.value.map((number): Range<Decoration> => LIT.range(newDoc.line(number + 1).from))) : before,
      known,
    ),
  provide: (field) => EditorView.decorations.from(field),
});

const labels = (trans: TranslationBundle): Record<Form, string> => ({
  adjoint: trans.__("adjoint"),
  tangent: trans.__("tangent"),
  textbook: trans.__("textbook"),
  cpp: "C++",
  cuda: "CUDA",
  ptx: "PTX",
  sass: trans.__("machine code"),
});

export class Forms extends Widget {
  private readonly choice: HTMLSelectElement;
  private readonly told = html("p", { class: "kernelab-told", role: "status" });
  private readonly language = new Compartment();
  private readonly shown: EditorView;
  private lines: Replies["forms"]["lines"] = [];
  private source: EditorView | null = null;
  /** The cell whose forms are shown. */
  private known: EditorView | null = null;

  constructor(
    private links: Links,
    private languages: IEditorLanguageRegistry,
    private trans: TranslationBundle,
  ) {
    super();
    this.id = "kernelab-forms";
    this.addClass("kernelab-forms");
    this.title.label = trans.__("Forms of the kernel");
    this.title.closable = true;
    this.choice = html(
      "select",
      { "aria-label": trans.__("form"), change: () => void this.load() },
      ...Object.entries(labels(trans)).map(([form, label]) => html("option", { value: form }, label)),
    );
    const place = html("div", { class: "kernelab-forms-text" });
    this.node.append(html("header", {}, this.choice), this.told, place);
    const extensions = [
      lit,
      jupyterTheme,
      syntaxHighlighting(jupyterHighlightStyle),
      EditorState.readOnly.of(true),
      this.language.of([]),
      EditorView.contentAttributes.of({ "aria-label": trans.__("derived form of the kernel cell") }),
      EditorView.updateListener.of((update) => update.transactions.some((one) => one.isUserEvent("select")) && this.lead()),
    ];
    this.shown = new EditorView({ state: EditorState.create({ extensions }), parent: place });
    links.moved.connect(this.moved, this);
    void this.load();
  }

  override dispose(): void {
    this.links.moved.disconnect(this.moved, this);
    this.shown.destroy();
    super.dispose();
  }

  /** A view that was closed is made anew when it is asked for again. */
  protected override onCloseRequest(): void {
    this.dispose();
  }

  /** Show the cell of an editor. */
  async follows(source: EditorView): Promise<void> {
    this.source = source;
    await this.load();
  }

  private moved(_: Links, { view, hasChanged }: { view: EditorView; hasChanged: boolean }): void {
    if (hasChanged || view !== this.source) void this.follows(view);
    else this.follow();
  }

  private async load(): Promise<void> {
    const { source } = this,
      form = this.choice.value as Form;
    const panel = source && this.links.panelOf(source);
    const got = panel && (await this.links.of(panel)?.ask("forms", { text: source.state.doc.toString(), form }));
    if (this.isDisposed || source !== this.source) return;
    this.told.textContent = !source ? this.trans.__("Put the cursor into a kernel cell.") : got ? this.howMuch(got) : nobody(this.trans);
    if (!got || (this.isOlder(got) && this.known === source)) return;
    this.known = source;
    this.lines = got.lines;
    this.shown.dispatch({ changes: { from: 0, to: this.shown.state.doc.length, insert: got.text }, effects: setLit.of([]) });
    this.follow();
    const spec = this.languages.findByName(FORMS[form]),
      language = spec && (await this.languages.getLanguage(spec.name));
    if (!this.isDisposed) this.shown.dispatch({ effects: this.language.reconfigure(language?.support ?? []) });
  }

  /** Nothing of a text with mistakes can be derived: what is known of the cell stays. */
  private isOlder({ whole, text }: Replies["forms"]): boolean {
    return !whole && !text;
  }

  private howMuch(got: Replies["forms"]): string {
    const { trans } = this;
    if (got.whole) return "";
    if (!this.isOlder(got)) return trans.__("This cell has a mistake: a part of it is shown.");
    return this.known === this.source && this.shown.state.doc.length
      ? trans.__("This cell has a mistake: what was derived before it is shown.")
      : trans.__("This cell has a mistake: its forms are shown once it is mended.");
  }

  /** Light what comes from the line of the cursor. */
  private follow(): void {
    if (!this.source) return;
    const { doc, selection } = this.source.state,
      numbers = linesOf(this.lines, doc.lineAt(selection.main.head).number - 1);
    const first = numbers[0],
      effects: StateEffect<unknown>[] = [setLit.of(numbers)];
    if (first !== undefined) effects.push(EditorView.scrollIntoView(this.shown.state.doc.line(first + 1).from, { y: "nearest" }));
    this.shown.dispatch({ effects });
  }

  /** Move the cursor of the cell to where the line of our cursor comes from. */
  private lead(): void {
    const { doc, selection } = this.shown.state,
      from = this.lines[doc.lineAt(selection.main.head).number - 1];
    if (typeof from !== "number" || !this.source || from >= this.source.state.doc.lines) return;
    this.source.dispatch({ selection: { anchor: this.source.state.doc.line(from + 1).from }, scrollIntoView: true });
    this.follow();
  }
}

// A view that follows what it is of: the HTML that Python makes, and sliders that a reader moves.

import { Connection } from "./connection";
import { html, slider } from "./dom";
import { ending, type Given } from "./ending";
import { keepInNotebook } from "./keeping";
import type { Message, Model, Slider } from "./protocol";

const STEPS = 200;

type ViewModel = Model & { get(key: "sliders"): Slider[] | undefined; get(key: "version"): number | undefined };

class Frames {
  private shown = html("div", {});
  private connection: Connection;
  private values: Record<string, number> = {};
  /** The page that comes next, and whether one is being drawn. */
  private next: string | undefined;
  private drawing = false;
  /** How many changes of the view the latest page has. */
  private version = 0;
  /** Whether Python has not answered yet, and whether sliders have moved since it was asked. */
  private asked = false;
  private moved = false;
  readonly element: HTMLElement;

  constructor(private model: ViewModel) {
    this.connection = new Connection(model);
    const sliders = (model.get("sliders") ?? []).map((slider) => this.slider(slider));
    this.element = html(
      "section",
      { class: "klt klt-frames", "aria-label": "live view" },
      ...(sliders.length ? [html("div", { class: "klt-sliders" }, ...sliders)] : []),
      this.shown,
      this.connection.element,
    );
    model.on("change:snapshot", this.settled);
    model.on("msg:custom", this.heard);
    this.settled();
    if (sliders.length) this.connection.greet();
  }

  private slider({ name, low, high, value }: Slider): HTMLElement {
    this.values[name] = value;
    const output = html("output", {}, value.toPrecision(4));
    const input = slider({
      min: low,
      max: high,
      step: (high - low) / STEPS,
      value,
      "aria-label": name,
      input: () => {
        this.values[name] = input.valueAsNumber;
        output.textContent = input.valueAsNumber.toPrecision(4);
        this.moved = true;
        this.ask();
      },
    });
    return html("label", {}, html("span", {}, name), input, output);
  }

  /** One question at a time: where an answer takes long, what the sliders passed meanwhile is left out. */
  private ask(): void {
    if (this.asked || !this.moved) return;
    this.moved = false;
    this.asked = this.connection.send({ op: "slide", values: this.values });
  }

  /** JupyterLab may put a state into its model that it asked for before later news came. */
  private settled = (): void => {
    const version = this.model.get("version") ?? 0;
    if (version < this.version) {
      this.connection.send({ op: "settle" });
      return;
    }
    this.version = version;
    void this.show(this.model.get("snapshot"));
  };

  private heard = (message: Message): void => {
    if (message.op !== "news") return;
    this.version = message.version ?? this.version;
    void this.show(message.html ?? "");
    this.asked = false;
    this.ask();
  };

  /** A page made by kernelab, in which everything from the notebook is escaped; pictures do not flicker. */
  private async show(page: string): Promise<void> {
    this.next = page;
    if (this.drawing) return;
    this.drawing = true;
    while (this.next !== undefined) {
      const made = html("div", {});
      made.innerHTML = this.next;
      this.next = undefined;
      await Promise.all([...made.querySelectorAll("img")].map((image) => image.decode?.().catch(() => {})));
      this.shown.replaceChildren(made);
    }
    this.drawing = false;
  }

  close(): void {
    this.model.off("change:snapshot", this.settled);
    this.model.off("msg:custom", this.heard);
    this.connection.close();
  }
}

export default {
  initialize({ model, signal }: Given): () => void {
    const keep = () => keepInNotebook(model);
    model.on("change:snapshot", keep);
    return ending(signal, () => model.off("change:snapshot", keep));
  },
  render({ model, el, signal }: Given & { el: HTMLElement }): () => void {
    const frames = new Frames(model as ViewModel);
    el.append(frames.element);
    keepInNotebook(model);
    return ending(signal, () => {
      frames.close();
      frames.element.remove();
    });
  },
};

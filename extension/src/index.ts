// The live tape, for any host of anywidget's front-end modules.

import { Connection } from "./connection";
import { bytes, count, html } from "./dom";
import { Details } from "./details";
import { ending, type Given } from "./ending";
import { Graph } from "./graph";
import { keepInNotebook } from "./keeping";
import { Problems } from "./problems";
import type { Model } from "./protocol";
import { Selection } from "./selection";
import { type Store, storeOf } from "./store";
import { Sweep } from "./sweep";
import { Timeline } from "./timeline";

/** For how many milliseconds at most nothing new is drawn while something is pressed. */
const HOLD = 2000;

interface Panel {
  readonly element: HTMLElement;
  update(): void;
  close(): void;
}

class View {
  readonly element: HTMLElement;
  private panels: Record<string, Panel>;
  private tabs: Record<string, HTMLButtonElement> = {};
  private current = "timeline";
  private title = html("span", { class: "klt-heading" });
  private problems: Problems;
  private details: Details;
  private connection: Connection;
  private waiting = 0;
  private pausing: ReturnType<typeof setTimeout> | undefined;
  /** When the page may be drawn again. */
  private resume = 0;

  constructor(
    private store: Store,
    model: Model,
  ) {
    // Hosts load this module once for each tape: a counter would give two views of a page the same names.
    const id = `klt-${Math.random().toString(36).slice(2)}`;
    const selection = new Selection();
    const timeline = new Timeline(store, selection, `${id}-rows`);
    const reveal = (record: number, memory: number | null = null) => {
      this.open("timeline");
      selection.pick(record, memory);
      timeline.reveal(record);
    };
    this.connection = new Connection(model);
    this.details = new Details(store, selection, model, this.connection, reveal);
    this.problems = new Problems(store, reveal);
    this.panels = {
      timeline,
      graph: new Graph(store, selection, `${id}-graph`),
      backward: new Sweep(store, selection, () => this.details.measure()),
    };
    const tabs = html("div", {
      class: "klt-tabs",
      role: "tablist",
      "aria-label": "views of the tape",
      keydown: (event: KeyboardEvent) => this.key(event),
    });
    for (const [name, panel] of Object.entries(this.panels)) {
      const tab = html(
        "button",
        { type: "button", role: "tab", id: `${id}-tab-${name}`, "aria-controls": `${id}-${name}`, click: () => this.open(name) },
        name,
      );
      panel.element.setAttribute("role", "tabpanel");
      panel.element.setAttribute("aria-labelledby", tab.id);
      panel.element.id = `${id}-${name}`;
      this.tabs[name] = tab;
      tabs.append(tab);
    }
    const panels = html("div", { class: "klt-panels" }, ...Object.values(this.panels).map((panel) => panel.element));
    this.element = html(
      "section",
      {
        class: "klt",
        "aria-label": "tape",
        // Browsers make no click of a press whose element is gone when it ends.
        pointerdown: () => this.postpone(performance.now() + HOLD),
        pointerup: () => this.postpone(0),
      },
      html("header", {}, this.title, tabs),
      this.connection.element,
      this.problems.element,
      html("div", { class: "klt-body", keydown: (event: KeyboardEvent) => this.enter(event) }, panels, this.details.element),
      this.details.reply,
    );
    this.open("timeline");
    this.connection.greet();
  }

  private open(name: string): void {
    this.current = name;
    for (const [other, panel] of Object.entries(this.panels)) {
      const chosen = other === name;
      panel.element.hidden = !chosen;
      this.tabs[other]!.setAttribute("aria-selected", String(chosen));
      this.tabs[other]!.tabIndex = chosen ? 0 : -1;
    }
    this.update();
  }

  private key(event: KeyboardEvent): void {
    const names = Object.keys(this.panels),
      at = names.indexOf(this.current);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    const name = names[(to + names.length) % names.length]!;
    this.open(name);
    this.tabs[name]!.focus();
    event.preventDefault();
    event.stopPropagation();
  }

  private enter(event: KeyboardEvent): void {
    // A notebook runs its cell at Shift-Enter; a button is pressed by Enter itself.
    if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.metaKey || event.target instanceof HTMLButtonElement) return;
    this.details.more();
    event.preventDefault();
    event.stopPropagation();
  }

  /** Draw soon, and once for all that comes until then; where drawing takes long, the page gets twice that time in between. */
  schedule = (): void => {
    if (this.waiting || this.pausing !== undefined) return;
    const frame = () => {
      this.pausing = undefined;
      this.waiting = requestAnimationFrame(() => this.redraw());
    };
    const pause = this.resume - performance.now();
    if (pause > 0) this.pausing = setTimeout(frame, pause);
    else frame();
  };

  /** Draw what waits to be drawn at another time. */
  private postpone(until: number): void {
    this.resume = until;
    if (!this.waiting && this.pausing === undefined) return;
    clearTimeout(this.pausing);
    cancelAnimationFrame(this.waiting);
    this.pausing = undefined;
    this.waiting = 0;
    this.schedule();
  }

  private redraw(): void {
    this.waiting = 0;
    const began = performance.now();
    this.update();
    const ended = performance.now();
    this.resume = ended + 2 * (ended - began);
  }

  update(): void {
    const { store } = this,
      saved = store.savedBytes;
    this.title.replaceChildren(
      html("b", {}, "tape"),
      ` ${count(store.length, "record")}, ${count(store.data.memories.length, "array")}${saved ? `, ${bytes(saved)} kept from being overwritten` : ""}`,
    );
    this.problems.update();
    this.panels[this.current]!.update();
    this.details.update();
  }

  close(): void {
    clearTimeout(this.pausing);
    cancelAnimationFrame(this.waiting);
    for (const panel of Object.values(this.panels)) panel.close();
    this.details.close();
    this.connection.close();
  }
}

/** One for each model, as most hosts call it: the store that the views of a model share lives in here. */
export default function () {
  const stores = new Map<Model, Store>();
  /** Hosts may give `render` another face of the model that they gave `initialize`. */
  const shared = (model: Model) => stores.get(model) ?? (stores.size === 1 ? [...stores.values()][0] : undefined);
  return {
    initialize({ model, signal }: Given): () => void {
      const { store, leave } = storeOf(model),
        keep = () => keepInNotebook(model);
      stores.set(model, store);
      model.on("change:snapshot", keep);
      return ending(signal, () => {
        model.off("change:snapshot", keep);
        leave();
        if (stores.get(model) === store) stores.delete(model);
      });
    },
    render({ model, el, signal }: Given & { el: HTMLElement }): () => void {
      const known = shared(model),
        { store, leave } = known ? { store: known, leave: () => {} } : storeOf(model);
      const view = new View(store, model);
      el.append(view.element);
      view.update();
      const stop = store.listen(view.schedule);
      keepInNotebook(model);
      return ending(signal, () => {
        stop();
        leave();
        view.close();
        view.element.remove();
      });
    },
  };
}

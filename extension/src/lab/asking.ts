// Asks about the text of an editor: as it changes, and once what is known of it may be another.

import type { Extension, Text } from "@codemirror/state";
import { type EditorView, type PluginValue, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { refresh } from "./kernel_cells";

/**
 * Ask once nothing was typed for `delay()` milliseconds, and show the answer; one about an older text is dropped.
 *
 * Cells that are out of sight are asked about when they come into sight: a notebook may have hundreds.
 */
export function asking<Found>(
  ask: (text: string) => Promise<Found>,
  delay: () => number,
  show: (view: EditorView, doc: Text, found: Found) => void,
): Extension {
  class Asking implements PluginValue {
    private timer: ReturnType<typeof setTimeout> | undefined;
    private isDue = false;
    private isSeen = false;
    private asked = 0;
    private readonly sight = new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1)!.isIntersecting;
      this.askIfSeen();
    });

    constructor(private view: EditorView) {
      this.sight.observe(view.dom);
      this.later();
    }
    update({ docChanged, transactions }: ViewUpdate): void {
      if (docChanged || transactions.some(({ effects }) => effects.some((one) => one.is(refresh)))) this.later();
    }
    destroy(): void {
      clearTimeout(this.timer);
      this.sight.disconnect();
      this.asked++;
    }
    private later(): void {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        this.isDue = true;
        this.askIfSeen();
      }, delay());
    }
    private askIfSeen(): void {
      if (!this.isDue || !this.isSeen) return;
      this.isDue = false;
      void this.run();
    }
    private async run(): Promise<void> {
      const { doc } = this.view.state,
        asked = ++this.asked,
        found = await ask(doc.toString());
      if (asked === this.asked && doc === this.view.state.doc) show(this.view, doc, found);
    }
  }
  return ViewPlugin.fromClass(Asking);
}

/** `ask`, and how many milliseconds its last answer took; null is none. */
export function timed<Found>(ask: (text: string) => Promise<Found>): { ask: (text: string) => Promise<Found>; took: () => number } {
  let took = 0;
  const measured = async (text: string) => {
    const begin = performance.now(),
      found = await ask(text);
    if (found !== null) took = performance.now() - begin;
    return found;
  };
  return { ask: measured, took: () => took };
}

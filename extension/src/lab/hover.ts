// What stands under the mouse: the type of a name, the derivative of an operation, the adjoint of a line.

import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { type EditorView, hoverTooltip, type Tooltip } from "@codemirror/view";
import { html } from "../dom";
import { offset, position } from "./cells";
import type { Replies, Requests } from "./messages";

export type Tell = (request: Requests["hover"]) => Promise<Replies["hover"] | null>;

/** Tooltips with what `tell` says; an answer about an older text is dropped. */
export function hover(tell: Tell, rendermime: IRenderMimeRegistry) {
  return hoverTooltip(
    async ({ state: { doc } }: EditorView, at: number): Promise<Tooltip | null> => {
      const told = await tell({ text: doc.toString(), position: position(doc, at) });
      if (!told?.markdown || !told.start || !told.end) return null;
      const dom = await shown(told.markdown, rendermime);
      return { pos: offset(doc, told.start), end: offset(doc, told.end), above: true, create: () => ({ dom }) };
    },
    { hideOnChange: true },
  );
}

/** Complete before it is placed: a tooltip that grows would leave the page. */
async function shown(markdown: string, rendermime: IRenderMimeRegistry): Promise<HTMLElement> {
  const renderer = rendermime.createRenderer("text/markdown");
  await renderer.renderModel(rendermime.createModel({ data: { "text/markdown": markdown } }));
  return html("div", { class: "kernelab-hover", role: "tooltip" }, renderer.node);
}

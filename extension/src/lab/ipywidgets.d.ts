// The part of ipywidgets' front-end that is used; JupyterLab has the module itself, where ipywidgets is installed.

declare module "@jupyter-widgets/base" {
  import type { Token } from "@lumino/coreutils";

  export class DOMWidgetModel {
    initialize(attributes: unknown, options: unknown): void;
    get(key: "_anywidget_id"): unknown;
    once(event: "destroy", callback: () => void): void;
  }
  export class DOMWidgetView {
    model: DOMWidgetModel;
    el: HTMLElement;
    remove(): unknown;
  }
  export const IJupyterWidgetRegistry: Token<{
    registerWidget(module: { name: string; version: string; exports: () => Promise<object> }): void;
  }>;
}

// What stands for anywidget's model and view: they know the widgets of kernelab, and run no script of any state.

import type { DOMWidgetModel, DOMWidgetView } from "@jupyter-widgets/base";
import type { Given } from "../ending";
import frames from "../frames";
import tape from "../index";
import { OURS, VIEWS } from "../keeping";
import type { Model } from "../protocol";
import style from "../tape.css";

const FOREIGN = "This widget brings a script of its own, which only anywidget runs: it is not installed in this JupyterLab.";

interface FrontEnd {
  initialize(given: Given): () => void;
  render(given: Given & { el: HTMLElement }): () => void;
}

/** The front-end of a widget, by the name of its class in Python. */
function frontEnd(name: unknown): FrontEnd | undefined {
  return name === OURS ? tape() : name === VIEWS ? frames : undefined;
}

/** The classes that a state of anywidget's names, made of those of ipywidgets. */
export function models(base: { DOMWidgetModel: typeof DOMWidgetModel; DOMWidgetView: typeof DOMWidgetView }): object {
  const known = new WeakMap<DOMWidgetModel, FrontEnd>();

  class AnyModel extends base.DOMWidgetModel {
    initialize(attributes: unknown, options: unknown): void {
      super.initialize(attributes, options);
      const made = frontEnd(this.get("_anywidget_id"));
      if (!made) return;
      known.set(this, made);
      this.once("destroy", made.initialize({ model: this as unknown as Model }));
    }
  }

  class AnyView extends base.DOMWidgetView {
    declare private end: (() => void) | undefined;

    render(): void {
      addStyle();
      this.end = known.get(this.model)?.render({ model: this.model as unknown as Model, el: this.el });
      if (!this.end) this.el.textContent = FOREIGN;
    }

    remove(): unknown {
      this.end?.();
      return super.remove();
    }
  }

  return { AnyModel, AnyView };
}

function addStyle(): void {
  if (document.getElementById("kernelab-style")) return;
  const made = document.createElement("style");
  made.id = "kernelab-style";
  made.textContent = style;
  document.head.append(made);
}

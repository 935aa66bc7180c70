// An extension of editors that is loaded with the first notebook; those that are open by then get it, too.

import { Compartment, type Extension } from "@codemirror/state";
import { ViewPlugin } from "@codemirror/view";

/** Nothing until `coming` is there. */
export function late(coming: Promise<Extension>): Extension {
  const held = new Compartment();
  const follow = ViewPlugin.define((view) => {
    let isOpen = true;
    void coming.then((extension) => isOpen && view.dispatch({ effects: held.reconfigure(extension) }));
    return { destroy: () => void (isOpen = false) };
  });
  return [held.of([]), follow];
}

// What stands in JupyterLab's frame before anything of it is needed: an empty panel at the right, its icon, its commands.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { TranslationBundle } from "@jupyterlab/translation";
import { LabIcon } from "@jupyterlab/ui-components";
import { BoxPanel } from "@lumino/widgets";

export const NABLA = new LabIcon({
  name: "kernelab:nabla",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="M2 4h20L12 21.5zM7 7.5l5.3 9.3 5-9.3z"/></svg>',
});

/** Opened by a command it gets the focus: Tab goes on inside, Escape leads back. */
class SidePlace extends BoxPanel {
  protected override onActivateRequest(): void {
    this.node.focus();
  }
}

/** The place of the panel at the right. */
export function sidePlace(trans: TranslationBundle): BoxPanel {
  const place = new SidePlace();
  place.node.tabIndex = -1;
  place.id = "kernelab-side";
  place.title.icon = NABLA;
  place.title.caption = trans.__("kernelab: tape, checks, warnings and arrays");
  place.node.setAttribute("role", "region");
  place.node.setAttribute("aria-label", place.title.caption);
  return place;
}

/** The labels of the commands that need a notebook; shortcuts and the menu's order stand in schema/plugin.json. */
const labels = (trans: TranslationBundle) => ({
  "show-forms": trans.__("Show the adjoint beside the notebook"),
  "show-side": trans.__("Show the tape, checks, warnings and arrays"),
  "check-kernel": trans.__("Check the gradients of this kernel"),
  "check-tape": trans.__("Check the tape"),
  "trace-thread": trans.__("Trace a thread of this kernel"),
  "restart-checked": trans.__("Restart the kernel in checked mode…"),
  "next-problem": trans.__("Next problem in this kernel cell"),
  "apply-fix": trans.__("Apply a fix at the cursor"),
  "tell-marks": trans.__("Explain the marks of this line"),
});

export type Commands = Record<keyof ReturnType<typeof labels>, () => unknown>;

/** Offer the commands while a notebook is in front. */
export function offer(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  trans: TranslationBundle,
  isEnabled: () => boolean,
  commands: () => Promise<Commands>,
): void {
  for (const [name, label] of Object.entries(labels(trans))) {
    const command = `kernelab:${name}`,
      execute = async () => (await commands())[name as keyof Commands]();
    app.commands.addCommand(command, { label, execute, isEnabled });
    palette?.addItem({ command, category: "kernelab" });
  }
}

// Keeps what a tape or a live view showed with the notebook that is saved, so that it is there again without a kernel.
//
// JupyterLab stores the state of widgets only where a setting says so, and a page that finds none shows an error
// in place of the static forms.  So the state of those that the notebook shows is put into its metadata, as
// JupyterLab itself would.  Where a host has no such notebook, nothing is done.

import type { Model } from "./protocol";

export const OURS = "kernelab.jupyter.live.TapeWidget";
export const VIEWS = "kernelab.jupyter.live.ViewWidget";
const ALL_OURS: unknown[] = [OURS, VIEWS];
const VIEW = "application/vnd.jupyter.widget-view+json";
const STATE = "application/vnd.jupyter.widget-state+json";
const REFERENCE = "IPY_MODEL_";
const LATER = 50;

type States = Record<string, { state: Record<string, unknown> }>;

/** What JupyterLab's widget manager and its notebooks offer. */
interface Manager {
  context?: { model?: Notebook };
  get_state_sync?: (options: { drop_defaults: boolean }) => { state: States };
}
interface Notebook {
  getMetadata?: (key: string) => Record<string, { state?: States }> | undefined;
  setMetadata?: (key: string, value: unknown) => void;
  cells?: Iterable<{ outputs?: Outputs }>;
}
interface Outputs {
  length: number;
  get(i: number): { data?: Record<string, unknown> } | undefined;
}

/** Store the state of all of ours that the notebook shows. */
export function keepInNotebook(model: Model): void {
  const manager = model.widget_manager as Manager | undefined,
    notebook = manager?.context?.model;
  if (typeof notebook?.setMetadata !== "function" || typeof manager?.get_state_sync !== "function") return;
  // After the host has put the change into its own state.
  setTimeout(() => {
    const whole = manager.get_state_sync?.({ drop_defaults: true });
    if (!whole) return;
    const before = notebook.getMetadata?.("widgets")?.[STATE]?.state ?? {};
    const kept = { ...without(before), ...tapes(whole.state, shownIn(notebook)) };
    notebook.setMetadata?.("widgets", { [STATE]: { ...whole, state: kept } });
  }, LATER);
}

function parts(states: States, ids: string[]): string[] {
  const values = ids.flatMap((id) => Object.values(states[id]!.state));
  const named = values.filter((one): one is string => typeof one === "string" && one.startsWith(REFERENCE));
  return [...ids, ...new Set(named.map((one) => one.slice(REFERENCE.length)))];
}

const isOurs = (states: States, id: string) => ALL_OURS.includes(states[id]?.state["_anywidget_id"]);

/** The states of ours that a notebook shows, with what they refer to: layouts, and the script that all share. */
export function tapes(states: States, shown: Set<string>): States {
  const ids = Object.keys(states).filter((id) => shown.has(id) && isOurs(states, id));
  return Object.fromEntries(
    parts(states, ids)
      .filter((id) => states[id])
      .map((id) => [id, states[id]!]),
  );
}

/** The states of everybody else. */
export function without(states: States): States {
  const ours = new Set(
    parts(
      states,
      Object.keys(states).filter((id) => isOurs(states, id)),
    ),
  );
  return Object.fromEntries(Object.entries(states).filter(([id]) => !ours.has(id)));
}

function shownIn(notebook: Notebook): Set<string> {
  const found = new Set<string>();
  for (const { outputs } of notebook.cells ?? []) {
    for (let i = 0; i < (outputs?.length ?? 0); i++) {
      const view = outputs?.get(i)?.data?.[VIEW] as { model_id?: string } | undefined;
      if (view?.model_id) found.add(view.model_id);
    }
  }
  return found;
}

// What hosts give a widget, and the end of its time.

import type { Model } from "./protocol";

/** What hosts give beside the model; a signal only some of them do. */
export interface Given {
  model: Model;
  signal?: AbortSignal;
}

/** Once at most, whether the host calls what it was given back, aborts its signal, or both. */
export function ending(signal: AbortSignal | undefined, end: () => void): () => void {
  let hasEnded = false;
  const once = () => {
    if (hasEnded) return;
    hasEnded = true;
    end();
  };
  signal?.addEventListener("abort", once, { once: true });
  return once;
}

// Whether a kernel stands behind the page: it answers when it is greeted, and JupyterLab tells when it has ended.

import { html } from "./dom";
import type { Asked, Message, Model } from "./protocol";

const PATIENCE = 4000;
const SILENT =
  "⚠ not connected: the kernel that made this view does not answer. It is busy or has ended; what stands here is what was last known.";
const ENDED =
  "⚠ not connected: the kernel that recorded this tape has ended. What stands here is what was last known; run the cells again for a live view.";
const LAST = ["restarting", "autorestarting", "terminating", "dead"];

/** A signal of JupyterLab's. */
interface Signal<T> {
  connect(slot: (sender: unknown, value: T) => void): void;
  disconnect(slot: (sender: unknown, value: T) => void): void;
}
interface Session {
  statusChanged?: Signal<string>;
  kernelChanged?: Signal<{ oldValue: unknown }>;
}

export class Connection {
  /** Empty while there is nothing to say. */
  readonly element = html("p", { class: "klt-offline", role: "status" });
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private readonly session: Session | undefined;

  constructor(private model: Model) {
    model.on("msg:custom", this.heard);
    this.session = (model.widget_manager as { context?: { sessionContext?: Session } } | undefined)?.context?.sessionContext;
    this.session?.statusChanged?.connect(this.status);
    this.session?.kernelChanged?.connect(this.changed);
  }

  /** Ask whether anybody is there. */
  greet(): void {
    if (this.send({ op: "hello" })) this.waiting = setTimeout(() => this.say(SILENT), PATIENCE);
  }

  /** Whether the host took it: some refuse once a kernel has ended. */
  send(content: Asked): boolean {
    try {
      this.model.send(content);
    } catch (refused) {
      console.debug("kernelab: the host of this tape refused a message", refused);
      this.say(ENDED);
      return false;
    }
    return true;
  }

  close(): void {
    clearTimeout(this.waiting);
    this.model.off("msg:custom", this.heard);
    this.session?.statusChanged?.disconnect(this.status);
    this.session?.kernelChanged?.disconnect(this.changed);
  }

  private say(words: string): void {
    clearTimeout(this.waiting);
    if (this.element.textContent !== words) this.element.textContent = words;
  }

  private heard = (_: Message): void => this.say("");

  private status = (_: unknown, status: string): void => {
    if (LAST.includes(status)) this.say(ENDED);
  };

  private changed = (_: unknown, { oldValue }: { oldValue: unknown }): void => {
    if (oldValue) this.say(ENDED);
  };
}

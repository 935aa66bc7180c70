// The connection with one kernel: a comm over a subshell where the kernel has those, so that it answers while a cell runs.

import type { Kernel, KernelMessage } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";
import { type Event, type Kind, READY, type Replies, type Reply, type Requests, TARGET, VERSION } from "./messages";

const ENDED: Kernel.Status[] = ["restarting", "autorestarting", "terminating", "dead"];

export class Link {
  /** What the kernel tells unasked; "ready" when it can answer. */
  readonly events = new Signal<this, Event>(this);
  private comm: Promise<Kernel.IComm | null> | null = null;
  private open: Kernel.IComm | null = null;
  private asked = new Map<number, (reply: Reply | null) => void>();
  /** Of each lane in which a question is under way, who hears whether he is the next. */
  private lanes = new Map<string, ((isNext: boolean) => void) | null>();
  private count = 0;

  constructor(readonly kernel: Kernel.IKernelConnection) {
    kernel.registerCommTarget(READY, () => {
      this.forget();
      void this.connect();
    });
    kernel.statusChanged.connect((_, status) => {
      if (!ENDED.includes(status)) return;
      this.forget();
      this.events.emit({ event: "ended" });
    });
    // What was on its way is lost; the kernel has kept its end of the comm.
    kernel.connectionStatusChanged.connect((_, status) => {
      if (status !== "connected") this.unanswered();
      else if (this.open) this.events.emit({ event: "ready" });
    });
    kernel.disposed.connect(() => this.forget());
  }

  /**
   * The kernel's answer; null where there is none, or where a newer question of the lane came before this one was sent.
   *
   * Of one lane one question is under way: the newest of those that come meanwhile follows.
   */
  async ask<K extends Kind>(kind: K, request: Requests[K], lane: string = kind): Promise<Replies[K] | null> {
    if (this.lanes.has(lane)) {
      this.lanes.get(lane)?.(false);
      if (!(await new Promise<boolean>((resolve) => this.lanes.set(lane, resolve)))) return null;
    }
    this.lanes.set(lane, null);
    const reply = await this.send(kind, request);
    const next = this.lanes.get(lane);
    if (next) next(true);
    else this.lanes.delete(lane);
    if (reply && "error" in reply) console.debug("kernelab:", reply.error);
    return reply && !("error" in reply) ? (reply as unknown as Replies[K]) : null;
  }

  private async send(kind: Kind, request: object): Promise<Reply | null> {
    const comm = await this.connect(),
      id = ++this.count;
    if (!comm || this.kernel.isDisposed) return null;
    return new Promise((resolve) => {
      this.asked.set(id, resolve);
      comm.send({ version: VERSION, id, kind, ...request });
    });
  }

  /** The comm; null once a kernel has said that it does not know kernelab, until it does. */
  private connect(): Promise<Kernel.IComm | null> {
    return (this.comm ??= this.begin());
  }

  private async begin(): Promise<Kernel.IComm | null> {
    await this.kernel.info;
    const comm = this.kernel.createComm(TARGET);
    this.open = comm;
    comm.onMsg = ({ content }: KernelMessage.ICommMsgMsg) => this.heard(content.data as unknown as Reply | Event);
    comm.onClose = () => {
      if (this.open === comm) this.forget(Promise.resolve(null));
    };
    // Part of every comm of JupyterLab 4.4 and later, but not of the interface.
    if (this.kernel.supportsSubshells) await (comm as { subshellStarted?: Promise<void> }).subshellStarted;
    comm.open({ version: VERSION });
    return comm;
  }

  private heard(message: Reply | Event): void {
    if ("event" in message) return this.events.emit(message);
    this.asked.get(message.id)?.(message);
    this.asked.delete(message.id);
  }

  private forget(next: Promise<null> | null = null): void {
    this.comm = next;
    this.open = null;
    this.unanswered();
  }

  /** Nobody answers what was asked. */
  private unanswered(): void {
    const asked = [...this.asked.values()];
    this.asked.clear();
    for (const answer of asked) answer(null);
  }
}

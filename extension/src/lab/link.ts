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
  private isAsking = false;
  /** Of each lane in which a question waits, who hears whether it is sent; the newest is the last. */
  private waiting = new Map<string, (isSent: boolean) => void>();
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
   * One question is under way, for a subshell answers one after another, and the newest that waits follows: that of the
   * cell in which one types comes before those of other cells.
   */
  async ask<K extends Kind>(kind: K, request: Requests[K], lane: string = kind): Promise<Replies[K] | null> {
    this.waiting.get(lane)?.(false);
    this.waiting.delete(lane);
    if (this.isAsking && !(await new Promise<boolean>((resolve) => this.waiting.set(lane, resolve)))) return null;
    this.isAsking = true;
    const reply = await this.send(kind, request);
    this.next();
    if (reply && "error" in reply) console.debug("kernelab:", reply.error);
    return reply && !("error" in reply) ? (reply as unknown as Replies[K]) : null;
  }

  private next(): void {
    const [lane, send] = [...this.waiting].at(-1) ?? [];
    this.isAsking = send !== undefined;
    if (lane === undefined) return;
    this.waiting.delete(lane);
    send?.(true);
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

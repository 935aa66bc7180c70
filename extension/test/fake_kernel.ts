// A kernel as far as a link sees one: it keeps what it is sent, and says what a test makes it say.

import type { Kernel } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";

export class FakeComm {
  sent: any[] = [];
  isOpen = false;
  onMsg: (message: any) => void = () => {};
  onClose: (message: any) => void = () => {};

  open(): void {
    this.isOpen = true;
  }
  send(data: unknown): void {
    this.sent.push(structuredClone(data));
  }
  say(data: object): void {
    this.onMsg({ content: { data } });
  }
}

export class FakeKernel {
  comms: FakeComm[] = [];
  targets = new Map<string, (comm: unknown) => void>();
  statusChanged = new Signal<this, Kernel.Status>(this);
  connectionStatusChanged = new Signal<this, Kernel.ConnectionStatus>(this);
  disposed = new Signal<this, void>(this);
  info = Promise.resolve({});
  supportsSubshells = false;
  isDisposed = false;

  /** As the connection of JupyterLab's that it stands for. */
  get connection(): Kernel.IKernelConnection {
    return this as unknown as Kernel.IKernelConnection;
  }
  get comm(): FakeComm {
    return this.comms.at(-1)!;
  }
  createComm(): FakeComm {
    this.comms.push(new FakeComm());
    return this.comm;
  }
  registerCommTarget(name: string, opened: (comm: unknown) => void): void {
    this.targets.set(name, opened);
  }
}

/** What is under way has gone as far as it can. */
export const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

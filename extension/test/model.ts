// The part of a host's model that the front-end uses, with what Python would do as calls.

import type { News } from "../src/protocol";

export class FakeModel {
  sent: any[] = [];
  /** How often a page has asked whether anybody is there. */
  greeted = 0;
  widget_manager: unknown = undefined;
  private heard = new Map<string, Set<(...args: any[]) => void>>();

  constructor(private snapshot = "") {}

  get(_: "snapshot"): string {
    return this.snapshot;
  }
  on(event: string, callback: (...args: any[]) => void): void {
    this.heard.set(event, (this.heard.get(event) ?? new Set()).add(callback));
  }
  off(event: string, callback: (...args: any[]) => void): void {
    this.heard.get(event)?.delete(callback);
  }
  send(content: any): void {
    if (content.op === "hello") this.greeted++;
    else this.sent.push(content);
  }
  listeners(event: string): number {
    return this.heard.get(event)?.size ?? 0;
  }
  private emit(event: string, ...args: unknown[]): void {
    this.heard.get(event)?.forEach((callback) => callback(...args));
  }
  news(news: News): void {
    this.emit("msg:custom", { op: "news", news });
  }
  message(content: object): void {
    this.emit("msg:custom", content);
  }
  settle(whole: News): void {
    this.put(JSON.stringify(whole));
  }
  put(snapshot: string): void {
    this.snapshot = snapshot;
    this.emit("change:snapshot");
  }
}

/** A tape: step 0 squares x into y, step 1 scales y into z, again and again. */
export function tape(records: number, more: Partial<News> = {}): News {
  return {
    epoch: 0,
    from: {},
    memories: [
      ["x", 4000, true],
      ["y", 4000, true],
      ["z", 4000, false],
    ],
    layouts: [
      ["float32", [1000]],
      ["float32", [10, 100]],
    ],
    arrays: [
      [0, 0],
      [1, 0],
      [2, 1],
    ],
    kinds: [
      { title: "square", kind: "launch", place: "Cell In[2], line 3", grid: [1000], reads: ["x"], writes: ["y"] },
      { title: "scale", kind: "launch", place: "Cell In[2], line 4", grid: [10, 100], reads: ["y"], writes: ["z"] },
    ],
    steps: [
      [0, [0], [1]],
      [1, [1], [2]],
    ],
    records: Array.from({ length: records }, (_, i) => i % 2),
    times: Array.from({ length: records }, () => 12.5),
    clashes: [],
    overwrites: [],
    scopes: [],
    findings: [],
    sweep: [],
    names: [
      [0, "x"],
      [1, "y"],
    ],
    ...more,
  };
}

export const CLASH = {
  outcome: "tainted" as const,
  read: ["Cell In[2], line 3", "square[1000](x, y)"] as [string, string],
  wrote: ["Cell In[2], line 9", "x.assign(z)"] as [string, string],
};

/** The array that record 0 read is overwritten by record 2. */
export const OVERWRITTEN = { clashes: [CLASH], overwrites: [[0, 0, 2, 0, 0, [0]]] as [number, number, number, number, number, number[]][] };

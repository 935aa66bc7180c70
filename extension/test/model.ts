// The part of a host's model that the front-end uses, with what Python would do as calls.

import type { News } from "../src/protocol";

export class FakeModel {
  sent: any[] = [];
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
  send(content: unknown): void {
    this.sent.push(content);
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
    this.snapshot = JSON.stringify(whole);
    this.emit("change:snapshot");
  }
}

/** A tape: step 0 squares x into y, step 1 scales y into z, again and again. */
export function tape(records: number, more: Partial<News> = {}): News {
  return {
    epoch: 0, from: {},
    memories: [["x", 4000, true], ["y", 4000, true], ["z", 4000, false]],
    arrays: [[0, "float32", [1000]], [1, "float32", [1000]], [2, "float32", [10, 100]]],
    steps: [
      { title: "square", kind: "launch", place: "Cell In[2], line 3", grid: [1000], reads: [["x", 0]], writes: [["y", 1]] },
      { title: "scale", kind: "launch", place: "Cell In[2], line 4", grid: [10, 100], reads: [["y", 1]], writes: [["z", 2]] },
    ],
    records: Array.from({ length: records }, (_, i) => i % 2),
    times: Array.from({ length: records }, () => 12.5),
    overwrites: [], scopes: [], findings: [], sweep: [], names: { 0: "x", 1: "y" },
    ...more,
  };
}

export const OVERWRITE = {
  reader: 0, writer: 2, array: 0, outcome: "tainted" as const, bytes: 0, affects: [0],
  read: ["Cell In[2], line 3", "square[1000](x, y)"] as [string, string],
  wrote: ["Cell In[2], line 9", "x.assign(z)"] as [string, string],
};

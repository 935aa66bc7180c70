// Sets whether what is observed is in sight: at first it is.

import { beforeEach, vi } from "vitest";

let seen = true;
const observers = new Set<() => void>();

class Observer {
  private readonly tell: () => void;
  constructor(told: (entries: { isIntersecting: boolean }[]) => void) {
    this.tell = () => told([{ isIntersecting: seen }]);
  }
  observe(): void {
    observers.add(this.tell);
    this.tell();
  }
  disconnect(): void {
    observers.delete(this.tell);
  }
}

/** Lets the tests of a file say what is in sight. */
export function withSight(): void {
  beforeEach(() => {
    seen = true;
    vi.stubGlobal("IntersectionObserver", Observer);
  });
}

export function sight(isSeen: boolean): void {
  seen = isSeen;
  for (const tell of observers) tell();
}

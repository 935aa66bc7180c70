// The files of tests share one document: each test leaves the clock and the functions of the page as they were.

import { afterEach, vi } from "vitest";

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

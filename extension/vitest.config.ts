import { defineConfig } from "vitest/config";

// One page for all files: to make a new one for each takes longer than the tests.
export default defineConfig({
  test: { environment: "happy-dom", isolate: false, testTimeout: 60_000, setupFiles: "test/setup.ts", include: ["test/**/*.test.ts"] },
});

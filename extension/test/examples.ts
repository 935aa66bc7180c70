// The examples of `protocol/`, which the tests of the kernel's side read, too.

import type { Reply, Request } from "../src/lab/messages";

declare global {
  interface ImportMeta {
    glob(pattern: string, options: { eager: true; import: "default" }): Record<string, { request: Request; reply: Reply }>;
  }
}

export const examples = Object.entries(import.meta.glob("../protocol/*.json", { eager: true, import: "default" }));

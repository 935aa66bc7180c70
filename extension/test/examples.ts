// The examples of `protocol/`, which the tests of the kernel's side read, too.

import type { Reply, Request, Warning } from "../src/lab/messages";

declare global {
  interface ImportMeta {
    glob(pattern: string, options: { eager: true; import: "default" }): Record<string, object>;
  }
}

const all = Object.entries(import.meta.glob("../protocol/*.json", { eager: true, import: "default" }));
export const examples = all.flatMap(([name, one]) =>
  "request" in one ? [[name, one as { request: Request; reply: Reply }] as const] : [],
);
export const warnings = all.flatMap(([, one]) => ("event" in one ? [one.event as Warning] : []));

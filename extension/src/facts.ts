// Facts about a record and an array that the page has without asking the kernel.

import { bytes, count, duration, html, place } from "./dom";
import type { Store } from "./store";

type Fact = [name: string, value: string | HTMLElement];

export function factsOfRecord(store: Store, record: number): HTMLElement[] {
  const step = store.step(record);
  const moved = (arrays: [string, number][]) => new Set(arrays.map(([, array]) => store.memoryOf(array)));
  const size = (memories: Set<number>) => [...memories].reduce((sum, memory) => sum + store.data.memories[memory]![1], 0);
  const scopes = store.data.scopes.filter(([, begin, end]) => begin <= record && record < end);
  const facts: Fact[] = [
    ...(step.grid
      ? ([
          ["grid", `${step.grid.join(" × ")} (${count(threads(step.grid), "thread")})`],
          ["device", step.device ?? ""],
        ] as Fact[])
      : []),
    ["time", duration(store.data.times[record] ?? -1) || "not measured: it ran before the tape was shown"],
    ["memory", `reads from ${bytes(size(moved(step.reads)))}, writes to ${bytes(size(moved(step.writes)))}`],
    ["where", place(step.place)],
    ...scopes.map(([name]): Fact => ["scope", name]),
  ];
  return [
    html("h5", {}, html("span", { class: "klt-quiet" }, `${record + 1}  `), html("code", {}, step.title)),
    list(facts),
    ...side(store, "reads", step.reads, record - 1),
    ...side(store, "changes", step.writes, record),
  ];
}

export function threads(grid: number[]): number {
  return grid.reduce((product, extent) => product * extent, 1);
}

/** Each parameter of one side with the array that it took, in the version after `record`. */
function side(store: Store, title: string, arrays: [string, number][], record: number): HTMLElement[] {
  if (!arrays.length) return [];
  const items = arrays.map(([parameter, array]) => {
    const memory = store.memoryOf(array),
      name = store.name(memory);
    const gradient = store.hasGradient(memory) ? ", ∇" : "";
    return html(
      "li",
      {},
      html("code", {}, parameter && parameter !== name ? `${parameter} = ${name}` : name),
      html("span", { class: "klt-quiet" }, ` ${store.layout(array)}, value ${store.versionAfter(memory, record)}${gradient}`),
    );
  });
  return [html("h6", {}, title), html("ul", {}, ...items)];
}

const MOST_LAYOUTS = 4;

const NAMELESS = "none in the notebook",
  BY_PARAMETER = ": this is the parameter that took it";

export function factsOfMemory(store: Store, memory: number): HTMLElement[] {
  const arrays = store.arraysOf(memory),
    hidden = arrays.length - MOST_LAYOUTS;
  const holds = arrays
    .slice(0, MOST_LAYOUTS)
    .map((array) => store.layout(array))
    .join("; ");
  const facts: Fact[] = [
    ...(store.isNamed(memory) ? [] : ([["name", NAMELESS + (store.parameterOf(memory) ? BY_PARAMETER : "")]] as Fact[])),
    ["holds", holds + (hidden > 0 ? `; ${hidden} more views` : "")],
    ["memory", bytes(store.data.memories[memory]![1])],
    ["gradient", store.hasGradient(memory) ? "required" : "not required"],
    ["versions", count(store.writesOf(memory), "write") + " on this tape"],
  ];
  return [html("h5", {}, html("code", {}, store.name(memory))), list(facts)];
}

function list(facts: Fact[]): HTMLElement {
  return html("dl", {}, ...facts.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
}

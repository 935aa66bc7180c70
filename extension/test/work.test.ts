// What an update costs while ten thousand launches are known already: counted, since times are a machine's own.

import { beforeEach, expect, test, vi } from "vitest";
import widget from "../src/index";
import type { News } from "../src/protocol";
import { FakeModel, CLASH, tape } from "./model";

const MANY = 10_000;

beforeEach(() => {
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
  vi.stubGlobal("requestAnimationFrame", (callback: () => void) => (callback(), 0));
  vi.useFakeTimers();
});

const numbers = (many: number) => Array.from({ length: many }, (_, i) => i);

/** A tape of so many launches, each of which overwrites what the one before it needs, and has been gone back through. */
const long = (many: number): News =>
  tape(many, {
    clashes: [CLASH],
    overwrites: numbers(many - 1).map((i) => [0, i, i + 1, 0, 4, [0]]),
    findings: numbers(5).map((i) => ({ code: "cut", message: `cut ${i}`, hint: "", at: ["Cell In[9], line 1", "y"], related: [] })),
    sweeps: 1,
    sweep: numbers(many).map((i) => [many - 1 - i, [[1, 1 / (1 + i)]]]),
  });

const more = (known: number): News => ({
  epoch: 0,
  from: { records: known, times: known, overwrites: known - 1, sweep: known },
  records: [0],
  times: [3],
  overwrites: [[0, known - 1, known, 0, 4, [0]]],
  sweep: [[0, [[1, 2]]]],
});

/** A tape of so many launches, each of which reads what the one before it has made. */
const chain = (many: number): News =>
  tape(many, {
    memories: numbers(many + 1).map(() => ["x", 4, true]),
    arrays: numbers(many + 1).map((i) => [i, 0]),
    names: numbers(many + 1).map((i) => [i, `xs[${i}]`]),
    steps: numbers(many).map((i) => [0, [i], [i + 1]]),
    records: numbers(many),
  });

const another = (known: number): News => ({
  epoch: 0,
  from: { memories: known + 1, arrays: known + 1, names: known + 1, steps: known, records: known, times: known },
  memories: [["x", 4, true]],
  arrays: [[known + 1, 0]],
  names: [[known + 1, `xs[${known + 1}]`]],
  steps: [[0, [known], [known + 1]]],
  records: [known],
  times: [3],
});

/** The nodes that one update makes, and how often it looks at what it draws, with so many launches known. */
function work(tab: string, many: number, before: (many: number) => News, update: (known: number) => News): number {
  const model = new FakeModel(JSON.stringify(before(many))),
    el = document.createElement("div");
  document.body.append(el);
  const hosted = widget();
  hosted.initialize({ model });
  hosted.render({ model, el });
  [...el.querySelectorAll<HTMLElement>("[role=tab]")].find((one) => one.textContent === tab)!.click();
  vi.runAllTimers();
  const spies = [
    vi.spyOn(document, "createElement"),
    vi.spyOn(document, "createElementNS"),
    vi.spyOn(Math, "max"),
    vi.spyOn(Math, "log10"),
    vi.spyOn(Element.prototype, "setAttribute"),
  ] as { mock: { calls: unknown[] }; mockRestore(): void }[];
  model.news(update(many));
  vi.runAllTimers();
  const count = spies.reduce((sum, spy) => sum + spy.mock.calls.length, 0);
  spies.forEach((spy) => spy.mockRestore());
  return count;
}

for (const tab of ["timeline", "graph", "backward"]) {
  test(`an update of the ${tab} of a long tape works no more than that of a shorter one`, () => {
    const [few, many] = [work(tab, MANY / 10, long, more), work(tab, MANY, long, more)];
    expect(few).toBeGreaterThan(10);
    expect(many).toBeLessThan(1.3 * few);
    expect(many).toBeLessThan(12_000);
  });
}

test("an update of the timeline of a tape on many arrays works no more than on fewer", () => {
  const [few, many] = [work("timeline", MANY / 10, chain, another), work("timeline", MANY, chain, another)];
  expect(few).toBeGreaterThan(10);
  expect(many).toBeLessThan(1.3 * few);
});

test("where drawing takes long the page gets time in between, and the last news are drawn all the same", () => {
  const model = new FakeModel(JSON.stringify(tape(2))),
    el = document.createElement("div");
  const hosted = widget();
  hosted.initialize({ model });
  hosted.render({ model, el });
  const heading = () => el.querySelector(".klt-heading")!.textContent;
  let now = 0;
  vi.spyOn(performance, "now").mockImplementation(() => (now += 40));
  const frame = () => vi.advanceTimersByTime(17);
  const launch = (known: number) => model.news({ epoch: 0, from: { records: known, times: known }, records: [0], times: [3] });
  launch(2);
  frame();
  expect(heading()).toContain("3 records");
  for (const known of [3, 4]) {
    launch(known);
    frame();
  }
  expect(heading()).toContain("3 records");
  vi.runAllTimers();
  expect(heading()).toContain("5 records");
  vi.restoreAllMocks();
});

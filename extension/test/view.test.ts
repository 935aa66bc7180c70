import { beforeEach, expect, test, vi } from "vitest";
import widget from "../src/index";
import { graphOf, MOST_LAUNCHES } from "../src/diagram";
import { tapes, without, OURS } from "../src/keeping";
import { Store } from "../src/store";
import { FakeModel, CLASH, OVERWRITTEN, tape } from "./model";

let el: HTMLElement;

// The clock stands still unless a test moves it: a slow machine postpones no drawing.
beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
  vi.stubGlobal("requestAnimationFrame", (callback: () => void) => (callback(), 0));
  document.body.replaceChildren((el = document.createElement("div")));
});

function open(model: FakeModel): () => void {
  const hosted = widget();
  hosted.initialize({ model });
  return hosted.render({ model, el });
}

const rows = () => [...el.querySelectorAll("[role=option]")].map((row) => row.getAttribute("aria-label"));
const words = (selector: string) => el.querySelector(selector)!.textContent;

function press(selector: string, ...keys: string[]): void {
  for (const key of keys) el.querySelector(selector)!.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}

function view(of: Partial<Parameters<typeof tape>[1]> = {}, records = 4): FakeModel {
  const model = new FakeModel(JSON.stringify(tape(records, of)));
  open(model);
  return model;
}

test("the title of a launch is shortened only where its grid and its time leave no room", () => {
  const title = (name: string, grid: number[] | undefined, times: number[]) => {
    el.replaceChildren();
    view({ kinds: [{ title: name, kind: "launch", place: "", grid, reads: ["in"], writes: ["out"] }], steps: [[0, [0], [1]]], times }, 1);
    return words(".klt-title");
  };
  expect(title("stretch (checkpoint)", undefined, [2e-6])).toBe("stretch (checkpoint)");
  expect(title("integrate_particles", [64, 64], [])).toBe("integrate_particles");
  expect(title("integrate_particles", [64, 64], [2e-6])).toBe("inte…particles");
});

test("a tape that is followed shows the arrays of its last launch, until the reader scrolls sideways", () => {
  const many = 40,
    model = new FakeModel(
      JSON.stringify(
        tape(0, {
          memories: Array.from({ length: many }, (_, i) => [`x${i}`, 4, true]),
          arrays: Array.from({ length: many }, (_, i) => [i, 0]),
          names: [],
          steps: Array.from({ length: many - 1 }, (_, i) => [0, [i], [i + 1]]),
          times: [],
        }),
      ),
    );
  open(model);
  const heads = () => [...el.querySelectorAll(".klt-name")].map((one) => Number(one.getAttribute("data-memory")));
  const scroller = el.querySelector<HTMLElement>(".klt-scroller")!;
  const launch = (known: number, step: number) => {
    model.news({ epoch: 0, from: { records: known }, records: [step] });
    vi.runAllTimers();
  };
  launch(0, 0);
  expect(heads()).toContain(0);
  launch(1, many - 2);
  expect(heads()).toContain(many - 1);
  scroller.scrollLeft = 0;
  scroller.dispatchEvent(new Event("scroll"));
  launch(2, many - 2);
  expect(heads()).toContain(0);
});

test("only the second and later values of an array have a number", () => {
  view({}, 3); // y, z, and y again
  expect([...el.querySelectorAll(".klt-version")].map((one) => one.textContent)).toEqual(["2"]);
});

test("a narrow view shows six arrays, each with its name, and neither grid nor time", () => {
  const model = new FakeModel(
    JSON.stringify(
      tape(1, {
        memories: Array.from({ length: 6 }, () => ["", 4, true]),
        arrays: Array.from({ length: 6 }, (_, i) => [i, 0]),
        names: ["a", "b", "c", "d", "e", "f"].map((name, i) => [i, name]),
        steps: [[0, [0, 1, 2], [3, 4, 5]]],
      }),
    ),
  );
  open(model);
  const scroller = el.querySelector<HTMLElement>(".klt-scroller")!;
  const drawn = (width: number) => {
    Object.defineProperty(scroller, "clientWidth", { get: () => width, configurable: true });
    press(".klt-scroller", "Home");
    return [...el.querySelectorAll(".klt-name text:first-of-type")].map((name) => name.textContent);
  };
  expect(drawn(270)).toEqual(["a∇", "b∇", "c∇", "d∇", "e∇", "f∇"]);
  expect(words(".klt-picture")).not.toContain("grid");
  expect(drawn(900)).toEqual(["a∇", "b∇", "c∇", "d∇", "e∇", "f∇"]);
  expect(words(".klt-picture")).toContain("grid");
});

test("the name of the last array has as much room in a narrow view as that of the one before it", () => {
  view(
    {
      memories: Array.from({ length: 15 }, () => ["", 4, true]),
      arrays: Array.from({ length: 15 }, (_, i) => [i, 0]),
      names: Array.from({ length: 15 }, (_, i) => [i, `in${100 + i}`]),
      steps: [[0, [0], [14]]],
    },
    1,
  );
  const scroller = el.querySelector<HTMLElement>(".klt-scroller")!;
  Object.defineProperty(scroller, "clientWidth", { get: () => 580, configurable: true });
  press(".klt-scroller", "Home");
  const names = [...el.querySelectorAll(".klt-name text:first-of-type")].map((name) => name.textContent);
  expect(names.slice(-2)).toEqual(["in113∇", "in114∇"]);
});

test("below a view that shows some of the arrays stands which", () => {
  view({ memories: Array.from({ length: 15 }, () => ["", 4, true]), arrays: Array.from({ length: 15 }, (_, i) => [i, 0]) }, 1);
  const scroller = el.querySelector<HTMLElement>(".klt-scroller")!;
  const shown = (width: number) => {
    Object.defineProperty(scroller, "clientWidth", { get: () => width, configurable: true });
    press(".klt-scroller", "Home");
    return words(".klt-insight");
  };
  expect(shown(2400)).toBe("");
  expect(shown(740)).toBe("◂ arrays 1 to 5 of 15 ▸");
  scroller.scrollLeft = 880;
  scroller.dispatchEvent(new Event("scroll"));
  expect(words(".klt-insight")).toBe("◂ arrays 11 to 15 of 15 ▸");
});

test("a tape that is followed is followed to the end again after its view was wider for a moment", () => {
  const observers: (() => void)[] = [];
  vi.stubGlobal(
    "ResizeObserver",
    class {
      constructor(resized: () => void) {
        observers.push(resized);
      }
      observe() {}
      disconnect() {}
    },
  );
  const many = 40,
    model = new FakeModel(
      JSON.stringify(
        tape(0, {
          memories: Array.from({ length: many }, (_, i) => [`x${i}`, 4, true]),
          arrays: Array.from({ length: many }, (_, i) => [i, 0]),
          names: [],
          steps: Array.from({ length: many - 1 }, (_, i) => [0, [i], [i + 1]]),
          times: [],
        }),
      ),
    );
  open(model);
  const scroller = el.querySelector<HTMLElement>(".klt-scroller")!;
  let width = 700;
  Object.defineProperty(scroller, "clientWidth", { get: () => width });
  const resize = (to: number) => {
    width = to;
    observers.forEach((resized) => resized());
  };
  const launch = (known: number) => {
    model.news({ epoch: 0, from: { records: known }, records: [many - 2] });
    vi.runAllTimers();
  };
  resize(701);
  launch(0);
  const end = scroller.scrollLeft;
  scroller.scrollLeft = end - 48;
  resize(749);
  resize(701);
  expect(end).toBeGreaterThan(48);
  expect(scroller.scrollLeft).toBe(end);
  // The browser tells that it has scrolled before it tells of the width.
  width = 749;
  scroller.scrollLeft = end - 48;
  scroller.dispatchEvent(new Event("scroll"));
  resize(749);
  scroller.scrollLeft = end - 48;
  resize(701);
  expect(scroller.scrollLeft).toBe(end);
  // A launch may be drawn between a change of the width and the word of it.
  resize(749);
  scroller.scrollLeft = end - 48;
  width = 701;
  launch(1);
  resize(701);
  expect(scroller.scrollLeft).toBe(end);
});

test("a row says what its launch reads and changes, and where", () => {
  view();
  expect(rows()[1]).toBe("2: scale; 1,000 threads; reads y; changes z; Cell In[2], line 4");
});

test("launches appear as news come", () => {
  const model = view();
  model.news({ epoch: 0, from: { records: 4, times: 4 }, records: [0], times: [3] });
  expect(rows()).toHaveLength(5);
  expect(words(".klt-heading")).toBe("tape 5 records, 3 arrays");
});

test("what is pressed stays until it is let go, for a while at most", () => {
  const model = view(),
    scroller = el.querySelector(".klt-scroller")!;
  const news = (from: number) => model.news({ epoch: 0, from: { records: from, times: from }, records: [0], times: [3] });
  scroller.dispatchEvent(new Event("pointerdown", { bubbles: true }));
  news(4);
  expect(rows()).toHaveLength(4);
  scroller.dispatchEvent(new Event("pointerup", { bubbles: true }));
  expect(rows()).toHaveLength(5);
  scroller.dispatchEvent(new Event("pointerdown", { bubbles: true }));
  news(5);
  expect(rows()).toHaveLength(5);
  vi.advanceTimersByTime(2000);
  expect(rows()).toHaveLength(6);
});

test("of a long tape only the rows in sight are drawn", () => {
  view({}, 10_000);
  expect(rows().length).toBeLessThan(40);
});

test("an overwrite names both lines, the price and what to do, and is told to screen readers", () => {
  view(OVERWRITTEN);
  const told = words(".klt-problems");
  for (const part of [
    "⚠ warning",
    "square[1000](x, y)",
    "Cell In[2], line 3",
    "x.assign(z)",
    "Cell In[2], line 9",
    "the gradient of x would be wrong",
    'overwrite="save"',
  ]) {
    expect(told).toContain(part);
  }
  expect(el.querySelector(".klt-problems")!.getAttribute("aria-live")).toBe("polite");
  expect(el.querySelectorAll(".klt-tainted path").length).toBeGreaterThan(0);
  expect(rows()[0]).toContain("what it read is overwritten later");
});

test("an overwrite from outside of the tape has a row of its own", () => {
  view({ clashes: [CLASH], overwrites: [[0, 0, -1, 0, 0, [0]]] });
  expect(words(".klt-picture")).toContain("outside of the tape");
  expect(words(".klt-problems")).toContain("x is overwritten by a line outside of the tape, but the adjoint of 1 (square)");
});

test("the label of an overwrite leaves the bracket of the next lane readable, and stands in the title", () => {
  const clash = { ...CLASH, outcome: "saved" as const };
  view({
    memories: Array.from({ length: 9 }, (_, i) => [`x${i}`, 4000, true]),
    arrays: Array.from({ length: 9 }, (_, i) => [i, 0]),
    clashes: [clash],
    overwrites: [
      [0, 0, 2, 0, 768, [0]],
      [0, 0, 2, 1, 768, [0]],
    ],
  });
  const brackets = [...el.querySelectorAll(".klt-overwrite")];
  expect(brackets.map((one) => one.querySelector("text")?.textContent ?? "")).toEqual(["", "kept 768 B"]);
  for (const one of brackets) expect(one.querySelector("title")!.textContent).toContain("kept 768 B");
});

test("overwrites by the same lines are told once", () => {
  view({
    clashes: [CLASH],
    overwrites: [
      [0, 0, 2, 0, 0, [0]],
      [0, 2, 3, 0, 0, [0]],
    ],
  });
  expect(el.querySelectorAll(".klt-problem")).toHaveLength(1);
  expect(words(".klt-problems")).toContain("(2 times)");
});

test("what backward() found is told with its hint", () => {
  view({
    findings: [
      {
        code: "cut",
        message: "no gradient flows through `y`",
        hint: "create it with requires_grad=True",
        at: ["Cell In[2], line 4", "scale(y)"],
        related: [["computed here:", "Cell In[2], line 3", "square(x)"]],
      },
    ],
  });
  for (const part of ["no gradient flows through `y`", "To do: create it with requires_grad=True", "scale(y)", "square(x)"])
    expect(words(".klt-problems")).toContain(part);
});

test("names from a notebook are text, never markup", () => {
  const evil = '<img src=x onerror="window.hacked = 1">';
  const kind = { title: evil, kind: "launch" as const, place: evil, grid: [1], reads: [evil], writes: [] };
  const overwritten = { clashes: [{ ...CLASH, read: [evil, evil] as [string, string] }], overwrites: OVERWRITTEN.overwrites };
  view({
    memories: [
      [evil, 4, true],
      ["y", 4, true],
      ["z", 4, true],
    ],
    names: [[0, evil]],
    kinds: [kind, kind],
    scopes: [[evil, 0, 2]],
    ...overwritten,
  });
  press(".klt-scroller", "Home", "ArrowRight");
  for (const tab of el.querySelectorAll<HTMLElement>("[role=tab]")) tab.click();
  expect(el.querySelectorAll("img")).toHaveLength(0);
  expect(el.textContent).toContain(evil);
});

test("arrow keys pick launches and arrays, Enter asks, Escape lets go", () => {
  const model = view();
  press(".klt-scroller", "ArrowDown", "ArrowDown");
  expect(words(".klt-facts h5")).toContain("scale");
  press(".klt-scroller", "Enter");
  expect(model.sent.at(-1)).toMatchObject({ op: "ask", ask: "record", number: 1 });
  press(".klt-scroller", "ArrowRight", "Enter");
  expect(model.sent.at(-1)).toMatchObject({ op: "ask", ask: "array", number: 0 });
  press(".klt-scroller", "Escape");
  expect(words(".klt-facts")).toContain("Pick a launch");
});

test("a thread of a launch is traced by its number", () => {
  const model = view();
  press(".klt-scroller", "ArrowDown");
  const input = el.querySelector<HTMLInputElement>(".klt-questions input")!;
  input.value = "7";
  press(".klt-questions input", "Enter");
  expect(model.sent).toHaveLength(1);
  expect(model.sent[0]).toMatchObject({ op: "ask", ask: "thread", number: 0, thread: 7 });
});

test("only the answer to the last question is shown", () => {
  const model = view();
  press(".klt-scroller", "ArrowDown", "Enter");
  const first = model.sent.at(-1).id;
  press(".klt-scroller", "ArrowDown", "Enter");
  model.message({ op: "answer", id: first, html: "<p>late</p>" });
  expect(words(".klt-answer")).not.toContain("late");
  model.message({ op: "answer", id: model.sent.at(-1).id, html: "<p>in time</p>" });
  expect(words(".klt-answer")).toContain("in time");
});

test("tabs are switched by arrow keys", () => {
  view();
  press("[role=tab]", "ArrowRight");
  expect([...el.querySelectorAll("[role=tab]")].map((tab) => tab.getAttribute("aria-selected"))).toEqual(["false", "true", "false"]);
  expect(el.querySelectorAll(".klt-node")).toHaveLength(5);
});

test("the sweep is gone through step by step", () => {
  view({
    sweep: [
      [3, [[1, 2.5]]],
      [2, [[0, "nan"]]],
    ],
  });
  el.querySelectorAll<HTMLElement>("[role=tab]")[2]!.click();
  expect(words(".klt-now")).toContain("step 1 of 2: back through launch 4, scale");
  expect(words(".klt-now")).toContain("2.500");
  el.querySelector<HTMLElement>("[aria-label='one step further back']")!.click();
  expect(words(".klt-now")).toContain("the gradient is not finite here");
});

test("a sweep that goes on is drawn once for many steps, and a new one from its beginning", () => {
  const model = view({ sweeps: 1, sweep: [[3, [[1, 2.5]]]] });
  el.querySelectorAll<HTMLElement>("[role=tab]")[2]!.click();
  for (const [at, record] of [
    [1, 2],
    [2, 1],
  ] as const)
    model.news({ epoch: 0, from: { sweep: at }, sweep: [[record, [[0, 1]]]] });
  expect(words(".klt-now")).toContain("step 1 of 1");
  vi.runAllTimers();
  expect(words(".klt-now")).toContain("step 1 of 3: ");
  model.news({ epoch: 0, from: { sweep: 0 }, sweeps: 2, sweep: [[0, [[0, 7]]]] });
  vi.runAllTimers();
  expect(words(".klt-now")).toContain("step 1 of 1: back through launch 1, square");
});

test("before a backward pass a button asks for a sweep on copies", () => {
  const model = view();
  el.querySelectorAll<HTMLElement>("[role=tab]")[2]!.click();
  el.querySelector<HTMLElement>(".klt-sweep button")!.click();
  expect(model.sent.at(-1)).toMatchObject({ op: "ask", ask: "measure" });
});

test("iterations of a loop are steps of their own", () => {
  view({
    sweep: [
      [3, [[1, 2.5]]],
      [2, [[-1, 0.5]], "Cell In[1], line 4, iteration 7"],
    ],
  });
  el.querySelectorAll<HTMLElement>("[role=tab]")[2]!.click();
  el.querySelector<HTMLElement>("[aria-label='one step further back']")!.click();
  expect(words(".klt-now")).toContain("Cell In[1], line 4, iteration 7");
  expect(words(".klt-now")).toContain("what the loop carries");
});

test("a sweep whose first step takes long to come is drawn when it comes", () => {
  const model = view();
  el.querySelectorAll<HTMLElement>("[role=tab]")[2]!.click();
  model.news({ epoch: 0, from: {}, sweeps: 1 });
  expect(words(".klt-sweep")).toContain("No backward pass");
  model.news({ epoch: 0, from: { sweep: 0 }, sweep: [[3, [[1, 2.5]]]] });
  expect(words(".klt-now")).toContain("step 1 of 1: back through launch 4, scale");
});

test("an element of a gradient is asked for by its indices", () => {
  const model = view();
  press(".klt-scroller", "ArrowRight");
  const input = el.querySelector<HTMLInputElement>(".klt-questions input")!;
  input.value = "3, 1";
  press(".klt-questions input", "Enter");
  expect(model.sent[0]).toMatchObject({ op: "ask", ask: "element", number: 0, index: [3, 1] });
});

test("what somebody types stays while launches come", () => {
  const model = view();
  press(".klt-scroller", "ArrowRight");
  const input = el.querySelector<HTMLInputElement>(".klt-questions input")!;
  model.news({ epoch: 0, from: { records: 4, times: 4 }, records: [0], times: [3] });
  expect(el.querySelector(".klt-questions input")).toBe(input);
});

test("a thread that added to a gradient is traced in its launch", () => {
  const model = view();
  press(".klt-scroller", "ArrowRight", "Enter");
  model.message({ op: "answer", id: model.sent.at(-1).id, html: "<table><tr><td data-asks='thread 1 2,5'>2, 5</td></tr></table>" });
  el.querySelector<HTMLElement>(".klt-cell")!.click();
  expect(model.sent.at(-1)).toMatchObject({ ask: "thread", number: 1, thread: 205 });
  expect(words(".klt-facts h5")).toContain("scale");
});

test("two views of a page share no id", () => {
  const model = view();
  open(model);
  const ids = [...el.querySelectorAll("[id]")].map((one) => one.id);
  expect(new Set(ids).size).toBe(ids.length);
});

test("a model that is gone is listened to no more, and its views leave nothing", () => {
  const model = new FakeModel(JSON.stringify(tape(1))),
    hosted = widget();
  const end = hosted.initialize({ model }),
    close = hosted.render({ model, el });
  close();
  end();
  expect([model.listeners("msg:custom"), model.listeners("change:snapshot"), el.childElementCount]).toEqual([0, 0, 0]);
});

test("a graph shrinks to fit its room, and is drawn large where it has to scroll anyway", () => {
  const scale = (share: number) => {
    el.replaceChildren();
    let room = 0;
    vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockImplementation(() => room);
    view({}, 3);
    const drawn = () => el.querySelector(".klt-graph .klt-picture")!;
    const natural = () => Number(drawn().getAttribute("viewBox")!.split(" ")[2]);
    el.querySelectorAll<HTMLElement>("[role=tab]")[1]!.click();
    room = share * natural() + 24;
    el.replaceChildren();
    view({}, 3);
    el.querySelectorAll<HTMLElement>("[role=tab]")[1]!.click();
    return Number(drawn().getAttribute("width")) / natural();
  };
  expect([2, 0.8, 0.5].map(scale)).toEqual([1, expect.closeTo(0.8, 5), expect.closeTo(0.9, 5)]);
  vi.restoreAllMocks();
});

test("a graph of what hardly repeats stays small", () => {
  const store = new Store(),
    many = MOST_LAUNCHES + 50;
  store.apply(
    tape(0, {
      memories: Array.from({ length: many }, () => ["x", 4, true]),
      arrays: Array.from({ length: many }, (_, i) => [i, 0]),
      kinds: Array.from({ length: many }, (_, i) => ({ ...tape(0).kinds![0]!, grid: [i] })),
      steps: Array.from({ length: many }, (_, i) => [i, [i], []]),
      records: Array.from({ length: many }, (_, i) => i),
      times: [],
    }),
  );
  const drawn = graphOf(store);
  expect(drawn.nodes.map((node) => node.detail)).toEqual([`${many} launches`, `${many} arrays`]);
  expect(drawn.note).toContain("drawn as one");
});

test("a closed view listens no more", () => {
  const model = new FakeModel(JSON.stringify(tape(1)));
  const hosted = widget();
  hosted.initialize({ model });
  const before = model.listeners("msg:custom");
  hosted.render({ model, el })();
  expect(model.listeners("msg:custom")).toBe(before);
});

test("of the states of a page only those of tapes that are shown are kept, with what they refer to", () => {
  const states = {
    tape: { state: { _anywidget_id: OURS, layout: "IPY_MODEL_room", script: "IPY_MODEL_script" } },
    room: { state: {} },
    script: { state: {} },
    old: { state: { _anywidget_id: OURS, layout: "IPY_MODEL_gone" } },
    gone: { state: {} },
    other: { state: {} },
  };
  expect(Object.keys(tapes(states, new Set(["tape", "other"])))).toEqual(["tape", "room", "script"]);
  expect(Object.keys(without(states))).toEqual(["other"]);
});

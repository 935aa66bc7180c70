import { beforeEach, expect, test, vi } from "vitest";
import widget from "../src/index";
import { Host, type Manner } from "./host";
import { OVERWRITTEN, tape } from "./model";

beforeEach(() => {
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
  vi.useFakeTimers();
  document.body.replaceChildren();
});

const HOSTS: Record<string, Manner> = {
  "a host with signals, faces and views as bytes": { signal: true, buffers: "DataView", faces: "many", shadow: false },
  "a host without signals, with array buffers": { signal: false, buffers: "ArrayBuffer", faces: "one", shadow: false },
  "a host with shadow roots and without buffers": { signal: true, buffers: "none", faces: "one", shadow: true },
};

const rows = (el: HTMLElement) => el.querySelectorAll("[role=option]").length;
const tab = (el: HTMLElement, at: number) => el.querySelectorAll<HTMLElement>("[role=tab]")[at]!.click();
const launch = (known: number) => ({ epoch: 0, from: { records: known, times: known }, records: [0], times: [3] });

for (const [name, manner] of Object.entries(HOSTS)) {
  const host = (records = 2) => new Host(JSON.stringify(tape(records, { ...OVERWRITTEN, overwrites: [] })), manner);

  test(`${name}: two views follow one model, each closed by itself`, () => {
    const hosted = host(),
      end = hosted.initialize(),
      [one, other] = [hosted.render(), hosted.render()];
    hosted.news(launch(2));
    vi.runAllTimers();
    expect([rows(one.el), rows(other.el)]).toEqual([3, 3]);
    one.close();
    hosted.news(launch(3));
    vi.runAllTimers();
    expect([one.el.childElementCount, rows(other.el)]).toEqual([0, 4]);
    other.close();
    end();
    expect([hosted.refused, hosted.listeners, other.el.childElementCount]).toEqual([[], 0, 0]);
  });

  test(`${name}: a reader asks in one view, and only that view shows the answer`, () => {
    const hosted = host(),
      end = hosted.initialize(),
      [one, other] = [hosted.render(), hosted.render()];
    one.el.querySelector(".klt-scroller")!.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
    one.el.querySelector(".klt-scroller")!.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    const { op, ask, id } = hosted.sent.at(-1);
    expect([op, ask]).toEqual(["ask", "record"]);
    hosted.message({ op: "answer", id, html: "<p>the kernel</p>" });
    expect([one.el, other.el].map((el) => el.querySelector(".klt-answer")!.textContent.includes("the kernel"))).toEqual([true, false]);
    for (const view of [one, other]) view.close();
    end();
    vi.runAllTimers();
    expect([hosted.refused, hosted.listeners]).toEqual([[], 0]);
  });

  test(`${name}: a model that is initialised again lives again`, () => {
    const hosted = host(),
      end = hosted.initialize(),
      before = hosted.render();
    before.close();
    end();
    const anew = hosted.initialize(),
      view = hosted.render();
    hosted.news(launch(2));
    vi.runAllTimers();
    expect(rows(view.el)).toBe(3);
    for (const at of [1, 2, 0]) tab(view.el, at);
    view.close();
    anew();
    vi.runAllTimers();
    expect([hosted.refused, hosted.listeners]).toEqual([[], 0]);
  });

  test(`${name}: a view that missed news asks for everything, and shows it`, () => {
    const hosted = host(),
      end = hosted.initialize(),
      view = hosted.render();
    hosted.news(launch(7));
    expect(hosted.sent).toEqual([{ op: "settle" }]);
    hosted.settle(tape(8));
    vi.runAllTimers();
    expect(rows(view.el)).toBe(8);
    view.close();
    end();
    expect([hosted.refused, hosted.listeners]).toEqual([[], 0]);
  });

  test(`${name}: a view is closed while something is still to be drawn, or to be answered`, () => {
    const hosted = host(),
      end = hosted.initialize(),
      view = hosted.render();
    tab(view.el, 1);
    hosted.news(launch(2));
    view.el.querySelector(".klt-body")!.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    view.close();
    end();
    vi.runAllTimers();
    expect([hosted.refused, hosted.listeners, view.el.childElementCount]).toEqual([[], 0, 0]);
  });
}

test("a host that loads the module once for several models shows each its own tape", () => {
  const module = widget(),
    manner = HOSTS["a host without signals, with array buffers"]!;
  const hosts = [2, 5].map((records) => new Host(JSON.stringify(tape(records)), manner, module));
  const ends = hosts.map((hosted) => hosted.initialize()),
    views = hosts.map((hosted) => hosted.render());
  expect(views.map(({ el }) => rows(el))).toEqual([2, 5]);
  for (const end of [...views.map(({ close }) => close), ...ends]) end();
  expect(hosts.map(({ refused, listeners }) => [refused, listeners])).toEqual([
    [[], 0],
    [[], 0],
  ]);
});

import { expect, test, vi } from "vitest";
import frames from "../src/frames";
import { FakeModel } from "./model";

class ViewModel extends FakeModel {
  constructor(
    snapshot: string,
    private sliders: object[] = [],
    public version = 0,
  ) {
    super(snapshot);
  }
  override get(key: string): any {
    return { sliders: this.sliders, version: this.version }[key] ?? super.get("snapshot");
  }
}

const SLIDERS = [{ name: "length", low: 0, high: 2, value: 1 }];
const drawn = () => vi.waitFor(() => undefined);

function render(model: ViewModel): { el: HTMLElement; close: () => void } {
  const el = document.createElement("div");
  return { el, close: frames.render({ model: model, el }) };
}

test("the latest page is shown, and what comes while one is drawn replaces it", async () => {
  const model = new ViewModel("<p>first</p>"),
    { el } = render(model);
  for (const page of ["second", "third", "fourth"]) model.message({ op: "news", html: `<p>${page}</p>` });
  await vi.waitFor(() => expect(el.textContent).toBe("fourth"));
  expect(el.querySelectorAll("p.klt-offline, .klt-frames p:not(.klt-offline)").length).toBe(2);
});

test("a state older than the latest news is not shown, and Python is asked for the present one", async () => {
  const model = new ViewModel("<p>1</p>"),
    { el } = render(model);
  model.message({ op: "news", html: "<p>2</p>", version: 2 });
  await vi.waitFor(() => expect(el.textContent).toBe("2"));
  model.version = 1;
  model.put("<p>old</p>");
  expect(model.sent).toEqual([{ op: "settle" }]);
  model.version = 3;
  model.put("<p>3</p>");
  await vi.waitFor(() => expect(el.textContent).toBe("3"));
  expect(model.sent.length).toBe(1);
});

test("the keys that move a slider stay in it, and others reach the page", () => {
  const { el } = render(new ViewModel("", SLIDERS));
  const heard: string[] = [];
  el.addEventListener("keydown", (event) => heard.push(event.key));
  for (const key of ["ArrowRight", "Home", "PageUp", "Enter", "Tab"])
    el.querySelector("input")!.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  expect(heard).toEqual(["Enter", "Tab"]);
});

test("a slider asks Python once at a time, and then for where it has come to", async () => {
  const model = new ViewModel("<p>1</p>", SLIDERS),
    { el } = render(model);
  const input = el.querySelector("input")!;
  for (const value of ["1.2", "1.5", "1.8"]) {
    input.value = value;
    input.dispatchEvent(new Event("input"));
  }
  expect(model.sent).toEqual([{ op: "slide", values: { length: expect.any(Number) } }]);
  model.message({ op: "news", html: "<p>2</p>" });
  await drawn();
  expect(model.sent.length).toBe(2);
  expect(el.querySelector("output")!.textContent).toBe("1.800");
  model.message({ op: "news", html: "<p>3</p>" });
  await vi.waitFor(() => expect(el.textContent).toContain("3"));
  expect(model.sent.length).toBe(2);
});

test("a closed view listens to nothing", () => {
  const model = new ViewModel("<p>1</p>", SLIDERS),
    { el, close } = render(model);
  close();
  expect(el.childElementCount).toBe(0);
  expect(model.listeners("msg:custom") + model.listeners("change:snapshot")).toBe(0);
});

import { nullTranslator } from "@jupyterlab/translation";
import { expect, test } from "vitest";
import type { ArrayFacts, Place } from "../src/lab/messages";
import { arraysShown, checksShown, digits, replace, stateShown, warningsShown } from "../src/lab/side_view";
import { examples, warnings } from "./examples";

const trans = nullTranslator.load("kernelab");
const { arrays } = examples.find(([, { request }]) => request.kind === "arrays")![1].reply as unknown as { arrays: ArrayFacts[] };

/** The facts of each array, without its picture. */
const facts = (shown: HTMLElement) => [...shown.querySelectorAll(".kernelab-facts")].map(({ textContent }) => textContent);

test("an array is shown by name, layout, norms and picture", () => {
  const shown = arraysShown(arrays, 0, new Set(), trans);
  expect(shown.querySelector("h2")!.textContent).toBe("Arrays (2)");
  expect(facts(shown)).toEqual(["m int32[2, 2]norm 5.477 ", "x float32[2] ∇norm 5 no gradient yet "]);
  expect([...shown.querySelectorAll(".kernelab-picture")].map((one) => one.querySelectorAll("tbody td").length)).toEqual([6, 2]);
});

test("what is not finite is marked, what cannot be read says less, and those left out are counted", () => {
  const bare: ArrayFacts = {
    name: "<b>",
    shape: [],
    dtype: "float32",
    device: "cuda:0",
    requires_grad: true,
    norm: "nan",
    grad_norm: 1234.56,
    picture: null,
  };
  const shown = arraysShown([bare, { ...bare, norm: null, grad_norm: null, requires_grad: false }], 3, new Set(), trans);
  expect(facts(shown)).toEqual(["<b> float32[] cuda:0 ∇norm nan gradient 1235 ", "<b> float32[] cuda:0"]);
  expect(shown.querySelector(".kernelab-bad")!.textContent).toBe("norm nan");
  expect(shown.querySelector("details")).toBeNull();
  expect(shown.textContent).toContain("Arrays (5)");
  expect(shown.textContent).toContain("and 3 more");
});

test("a check is shown with its verdict, and leads to its line", () => {
  const [warning] = warnings,
    went: Place[] = [];
  const check = { ...warning!, verdict: "✗ FAIL  gradcheck of square", passed: false };
  const shown = checksShown([check], { linesOf: () => null, go: (place) => went.push(place) }, trans)[0]!;
  expect(shown.querySelector(".kernelab-bad")!.textContent).toBe(check.verdict);
  shown.querySelector("button")!.click();
  expect(went).toEqual([check]);
  expect(checksShown([], { linesOf: () => null, go: () => {} }, trans)).toEqual([]);
});

test("norms have four digits", () => {
  expect([0, 5, 1 / 3, 123456, 1e-9, 2.5e7, "inf"].map(digits)).toEqual(["0", "5", "0.3333", "123500", "1.00e-9", "2.50e+7", "inf"]);
});

test("a picture that was closed stays closed", () => {
  const closed = new Set(["x"]),
    shown = arraysShown(arrays, 0, closed, trans);
  const open = () => [...shown.querySelectorAll("details")].map((one) => one.open);
  expect(open()).toEqual([true, false]);
  const [first] = shown.querySelectorAll("details");
  first!.open = false;
  first!.dispatchEvent(new Event("toggle"));
  expect([...closed].sort()).toEqual(["m", "x"]);
});

test("each line of a warning is a button that leads there, and says what has become of the line", () => {
  const [warning] = warnings,
    [other] = warning!.others,
    went: Place[] = [];
  const now: string[] = [];
  now[warning!.line] = `  ${warning!.text}`;
  now[other!.line] = "edited";
  const cell = () => Array.from(now, (one) => one ?? "");
  const notebook = { linesOf: () => (now.length ? cell() : null), go: (place: Place) => went.push(place) };
  const said = () =>
    [...warningsShown(warnings, notebook, trans).querySelectorAll("button")].map((one) => one.querySelector("small")!.textContent);
  expect(said()).toEqual(["", "edited since"]);
  now.unshift("# a line above");
  expect(said()).toEqual(["", "edited since"]);
  now.shift();
  const shown = warningsShown(warnings, notebook, trans);
  expect(shown.querySelector("p")!.textContent).toBe(warning!.message);
  expect(shown.querySelector("button")!.textContent).toBe(`Cell In[3], line ${warning!.line + 1} ${warning!.text}`);
  for (const button of shown.querySelectorAll("button")) button.click();
  expect(went).toEqual([warning, other]);
  const later = warningsShown([warning!, { ...warning!, key: 2, message: "later" }], notebook, trans);
  expect([...later.querySelectorAll("p")].map((one) => one.textContent)).toEqual(["later", warning!.message]);
  expect(warningsShown([], notebook, trans).textContent).toBe("Warningsnone");
  now.length = 0;
  expect(said()).toEqual(["deleted since", "deleted since"]);
});

test("the status bar names device, compiler, checked mode, and the warnings by which a gradient is wrong", () => {
  const state = { device: "cpu", compiler: "g++", checked: null, launches: null, problems: [], warnings: 0 };
  expect(stateShown({ ...state, launches: 0 }, 0, trans)).toBe("∇  cpu  g++");
  expect(stateShown(state, 0, trans)).toBe("∇  cpu  g++");
  expect(stateShown({ ...state, compiler: null }, 1, trans)).toBe("∇  cpu  no compiler  ⚠ 1 warning");
  expect(stateShown({ ...state, checked: "full", launches: 3 }, 2, trans)).toBe(
    "∇  cpu  g++  checked: full  3 launches on the tape  ⚠ 2 warnings",
  );
});

test("the focus stays on the same array when everything is drawn anew", () => {
  const place = document.createElement("div");
  document.body.append(place);
  const draw = (some: ArrayFacts[]) => replace(place, arraysShown(some, 0, new Set(), trans));
  draw(arrays);
  place.querySelector<HTMLElement>('[data-key="array x"]')!.focus();
  draw([...arrays].reverse());
  expect(document.activeElement!.getAttribute("data-key")).toBe("array x");
  draw([]);
  expect(document.activeElement).toBe(document.body);
  place.remove();
});

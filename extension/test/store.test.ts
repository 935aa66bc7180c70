import { expect, test } from "vitest";
import { factsOfMemory } from "../src/facts";
import { Store, storeOf } from "../src/store";
import { FakeModel, tape } from "./model";

const counted = (store: Store) => [store.length, store.data.steps.length];

test("news are added to what is known", () => {
  const store = new Store();
  expect(store.apply(tape(2))).toBe(true);
  expect(store.apply({ epoch: 0, from: { records: 2, times: 2 }, records: [0], times: [-1] })).toBe(true);
  expect(counted(store)).toEqual([3, 2]);
});

test("a snapshot that comes late takes nothing away and adds nothing twice", () => {
  const store = new Store();
  store.apply(tape(5));
  store.apply(tape(3));
  expect(store.data.records).toEqual([0, 1, 0, 1, 0]);
});

test("news that miss something before them are refused as a whole", () => {
  const store = new Store();
  store.apply(tape(2));
  expect(store.apply({ epoch: 0, from: { records: 3, steps: 2 }, records: [2], steps: [tape(0).steps![0]!] })).toBe(false);
  expect(counted(store)).toEqual([2, 2]);
});

test("a page that missed something asks for everything", () => {
  const model = new FakeModel(JSON.stringify(tape(2)));
  const { store } = storeOf(model);
  model.news({ epoch: 0, from: { records: 9 }, records: [1] });
  expect(model.sent).toEqual([{ op: "settle" }]);
  model.settle(tape(10));
  expect(store.length).toBe(10);
});

test("a tape that was reset starts afresh", () => {
  const store = new Store();
  store.apply(tape(6));
  store.apply({ ...tape(1), epoch: 1 });
  expect(counted(store)).toEqual([1, 2]);
  expect(store.versionAfter(1, 0)).toBe(1);
});

test("versions count the writes to a memory", () => {
  const store = new Store();
  store.apply(tape(6));
  expect([0, 1, 2, 5].map((record) => store.versionAfter(1, record))).toEqual([1, 1, 2, 3]);
  expect(store.versionAfter(0, 5)).toBe(0);
});

test("an array without a name has that of its parameter, unless another array has it", () => {
  const store = new Store();
  store.apply({ ...tape(1), memories: [["x", 4, false], ["y", 4, false], ["z", 4, false]], names: [[0, "y"]] }); // prettier-ignore
  expect([0, 1, 2].map((memory) => store.name(memory))).toEqual(["y", "array 2", "z"]);
  expect(factsOfMemory(store, 1)[1]!.textContent).toContain("none in the notebook");
  expect(factsOfMemory(store, 1)[1]!.textContent).not.toContain("parameter");
  expect(factsOfMemory(store, 2)[1]!.textContent).toContain("parameter");
});

test("arrays without a name that are of one parameter have numbers", () => {
  const store = new Store();
  store.apply({ ...tape(1), memories: [["x", 4, false], ["out", 4, false], ["out", 4, false]], names: [] }); // prettier-ignore
  expect([0, 1, 2].map((memory) => store.name(memory))).toEqual(["x", "out#2", "out#3"]);
});

test("a name is that of the last array that it was given", () => {
  const store = new Store();
  const names: [number, string][] = [[0, "x"], [1, "y"], [0, "old"], [1, "x"], [2, "y"], [2, "old"]]; // prettier-ignore
  store.apply({ ...tape(1), memories: [["a", 4, false], ["b", 4, false], ["c", 4, false]], names }); // prettier-ignore
  expect([0, 1, 2].map((memory) => store.name(memory))).toEqual(["a", "x", "old"]);
  expect([0, 1, 2].map((memory) => store.isNamed(memory))).toEqual([false, true, true]);
});

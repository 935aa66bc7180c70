import { expect, test } from "vitest";
import { shown, standIns, tree } from "../src/fold";

const keys = (text: string) => (record: number) => text.charCodeAt(record);
const folded = (text: string, scopes: [string, number, number][] = []) => tree(text.length, scopes, keys(text));

test("what repeats is shown once", () => {
  expect(folded("abcabcabc")).toEqual([{ name: "", parts: [0, 1, 2], times: 3 }]);
  expect(folded("zaabbbc")).toEqual([0, { name: "", parts: [1], times: 2 }, { name: "", parts: [3], times: 3 }, 6]);
});

test("a repetition that has begun once more at the end belongs to it", () => {
  expect(folded("abcabcab")).toEqual([{ name: "", parts: [0, 1, 2], times: 2, begun: 2 }]);
  expect(folded("ababac")).toEqual([{ name: "", parts: [0, 1], times: 2 }, 4, 5]);
});

test("what does not repeat is left as it is", () => {
  expect(folded("abcd")).toEqual([0, 1, 2, 3]);
});

test("scopes are groups, nested and repeated ones too", () => {
  const parts = folded("abab", [
    ["step", 0, 2],
    ["step", 2, 4],
    ["all", 0, 4],
  ]);
  const step = { name: "step", parts: [0, 1], times: 1 };
  expect(parts).toEqual([{ name: "all", parts: [{ name: "", parts: [step], times: 2 }], times: 1 }]);
  expect([...shown(parts)]).toEqual([0, 1]);
});

test("of scopes that begin and end together the one closed last is outside, and one still open is none", () => {
  expect(
    folded("ab", [
      ["inner", 0, 2],
      ["outer", 0, 2],
      ["open", 1, 5],
      ["empty", 1, 1],
    ]),
  ).toEqual([{ name: "outer", parts: [{ name: "inner", parts: [0, 1], times: 1 }], times: 1 }]);
});

test("ten thousand records that repeat fold to one sequence", () => {
  const parts = tree(10_000, [], (record) => record % 4);
  expect(parts).toEqual([{ name: "", parts: [0, 1, 2, 3], times: 2500 }]);
});

test("each record has one that is shown in its place, through all levels", () => {
  const stands = (text: string, scopes?: [string, number, number][]) => standIns(folded(text, scopes), text.length);
  expect(stands("zabcabcab")).toEqual([0, 1, 2, 3, 1, 2, 3, 1, 2]);
  expect(stands("aabaab")).toEqual([0, 1, 2, 0, 1, 2]);
  expect(stands("aaab")).toEqual([0, 0, 0, 3]);
  expect(
    stands("abab", [
      ["step", 0, 2],
      ["step", 2, 4],
    ]),
  ).toEqual([0, 1, 0, 1]);
});

import { expect, test } from "vitest";
import { bytes, count, cut, duration, html, shorten } from "../src/dom";

test("a long name keeps its end, by which it differs from others", () => {
  expect(shorten("state['velocity_3']", 10)).toBe("sta…ty_3']");
  expect(shorten("x", 10)).toBe("x");
  expect(cut("velocity", 5)).toBe("velo…");
});

test("sizes and times have the unit that fits", () => {
  expect([12, 1500, 2.5e6, 3e9].map(bytes)).toEqual(["12 bytes", "1.5 kB", "2.5 MB", "3.0 GB"]);
  expect([-1, 2.5, 250, 12_000, 3.2e6].map(duration)).toEqual(["", "2.5 µs", "250 µs", "12 ms", "3.2 s"]);
  expect([count(1, "launch", "launches"), count(2000, "launch", "launches")]).toEqual(["1 launch", "2,000 launches"]);
});

test("what is put into an element is text", () => {
  const made = html("p", { title: "<b>" }, "<img src=x>");
  expect([made.childElementCount, made.textContent, made.title]).toEqual([0, "<img src=x>", "<b>"]);
});

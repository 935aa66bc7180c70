import { expect, test } from "vitest";
import { Course, said } from "../src/course";
import type { SweepStep } from "../src/protocol";
import { barsOf } from "../src/strip";

const steps = (...norms: (number | string)[]): SweepStep[] => norms.map((norm, record) => [record, [[0, norm]]]);

test("a gradient vanishes or explodes against those next to the loss", () => {
  expect(new Course().follow(steps(1, 10, 1e8, 1e-9, 0, "nan")).trends).toEqual(["", "", "explodes", "vanishes", "zero", "not finite"]);
});

test("a step that changes no adjoint is no zero", () => {
  expect(new Course().follow([[0, []]]).trends).toEqual([""]);
});

test("what is new of a pass is taken in, and another pass begins afresh", () => {
  const course = new Course(), sweep = steps(1e-9);
  course.follow(sweep);
  sweep.push(...steps(1));
  expect(course.follow(sweep).trends).toEqual(["", "explodes"]);
  expect(course.follow(steps(1)).trends).toEqual([""]);
});

test("bars of many steps tell the largest of neighbours and where a trend begins", () => {
  const course = new Course().follow(steps(1, 2, 1e-9, 1e-9));
  expect(barsOf(course, 2)).toEqual([
    { from: 0, to: 2, size: 2, trend: "", begins: false },
    { from: 2, to: 4, size: 1e-9, trend: "vanishes", begins: true },
  ]);
  expect(barsOf(course, 400)).toHaveLength(4);
});

test("a trend is said in words", () => {
  expect([said("zero"), said("explodes")]).toEqual(["the gradient is zero here", "the gradient explodes here"]);
});

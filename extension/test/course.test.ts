import { expect, test } from "vitest";
import { Course, said } from "../src/course";
import type { SweepStep } from "../src/protocol";
import { Bars } from "../src/bars";

const steps = (...norms: (number | string)[]): SweepStep[] => norms.map((norm, record) => [record, [[0, norm]]]);

test("a gradient vanishes or explodes against those next to the loss", () => {
  expect(new Course().follow(steps(1, 10, 1e8, 1e-9, 0, "nan")).trends).toEqual(["", "", "explodes", "vanishes", "zero", "not finite"]);
});

test("a step that changes no adjoint is not a zero", () => {
  expect(new Course().follow([[0, []]]).trends).toEqual([""]);
});

test("what is new of a pass is taken in, and another pass begins afresh", () => {
  const course = new Course(),
    sweep = steps(1e-9);
  course.follow(sweep);
  sweep.push(...steps(1));
  expect(course.follow(sweep).trends).toEqual(["", "explodes"]);
  expect(course.follow(steps(1)).trends).toEqual([""]);
});

test("bars of many steps tell the largest of neighbours and where a trend begins", () => {
  const course = new Course().follow(steps(1, 2, 1e-9, 1e-9));
  const few = new Bars(2).follow(course),
    many = new Bars(400).follow(course);
  expect(few.bars.map(({ size, trend }) => [size, trend])).toEqual([
    [2, ""],
    [1e-9, "vanishes"],
  ]);
  expect([few.beginnings(), few.barOf(3), many.bars.length, many.beginnings()]).toEqual([[1], 1, 4, [2]]);
});

test("bars that grow with a pass are those of the whole pass", () => {
  const sizes = Array.from({ length: 1000 }, (_, i) => (i % 97 ? 1 / (1 + i) : i % 2 ? 0 : 1e9));
  const course = new Course(),
    grown = new Bars(64),
    sweep: SweepStep[] = [];
  for (const step of steps(...sizes)) {
    sweep.push(step);
    grown.follow(course.follow(sweep));
  }
  const whole = new Bars(64).follow(new Course().follow(steps(...sizes)));
  expect([grown.bars, grown.span]).toEqual([whole.bars, 16]);
  expect(whole.bars.map(({ size }) => size)).toEqual(
    Array.from({ length: 63 }, (_, bar) => Math.max(...sizes.slice(16 * bar, 16 * bar + 16))),
  );
});

test("what one more step costs does not grow with the pass", () => {
  const sweep = steps(...Array.from({ length: 10_000 }, (_, i) => 1 / (1 + i)));
  const course = new Course().follow(sweep),
    bars = new Bars(400).follow(course);
  let looked = 0;
  const watched = <T extends object>(rows: T[] | number[] | string[]) =>
    new Proxy(rows, { get: (of, key, self) => ((looked += Number(/^\d+$/.test(String(key)))), Reflect.get(of, key, self)) });
  sweep.push(...steps(1e-9));
  // The pass as the course knows it, watched from here on.
  Object.assign(course, { of: sweep, sizes: watched(course.sizes), trends: watched(course.trends) });
  Object.assign(bars, { of: course.sizes, bars: watched(bars.bars) });
  bars.follow(course.follow(sweep));
  expect(looked).toBeLessThan(8);
});

test("a trend is said in words", () => {
  expect([said("zero"), said("explodes")]).toEqual(["the gradient is zero here", "the gradient explodes here"]);
});

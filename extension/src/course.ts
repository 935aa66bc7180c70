// The course of a gradient through a backward pass: how large it is after each step, and where that is worth a word.

import type { Norm, SweepStep } from "./protocol";

/** A factor by which a gradient may change in one pass before it is worth a word. */
export const FAR = 1e6;

export type Trend = "" | "vanishes" | "explodes" | "zero" | "not finite";

const value = (norm: Norm) => (typeof norm === "number" ? norm : Infinity);

export class Course {
  sizes: number[] = [];
  trends: Trend[] = [];
  /** The powers of ten between which the sizes are that are neither 0 nor infinite; 1 is among them. */
  lowest = 0;
  highest = 0;
  private of: SweepStep[] | undefined;
  /** The size next to the loss, by which the others are measured. */
  private first = 0;

  /** Take in the steps that are new. */
  follow(sweep: SweepStep[]): this {
    if (sweep !== this.of) this.begin(sweep);
    for (let step = this.sizes.length; step < sweep.length; step++) {
      const norms = sweep[step]![1],
        size = norms.reduce((most, [, norm]) => Math.max(most, value(norm)), 0);
      if (!this.first && size < Infinity) this.first = size;
      if (size > 0 && size < Infinity) this.stretch(Math.log10(size));
      this.sizes.push(size);
      this.trends.push(norms.length ? this.trend(size) : "");
    }
    return this;
  }

  private begin(sweep: SweepStep[]): void {
    this.of = sweep;
    this.sizes = [];
    this.trends = [];
    this.first = this.lowest = this.highest = 0;
  }

  private stretch(power: number): void {
    this.lowest = Math.min(this.lowest, power);
    this.highest = Math.max(this.highest, power);
  }

  private trend(size: number): Trend {
    if (size === Infinity) return "not finite";
    if (size === 0) return "zero";
    return size > this.first * FAR ? "explodes" : size < this.first / FAR ? "vanishes" : "";
  }
}

/** The words for each trend. */
export function said(trend: Trend): string {
  return trend === "zero" || trend === "not finite" ? `the gradient is ${trend} here` : `the gradient ${trend} here`;
}

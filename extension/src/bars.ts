// Many steps in few bars: each bar stands for as many neighbours as it must, and grows with a pass that goes on.

import type { Course, Trend } from "./course";

export interface Bar {
  /** The largest size of its steps. */
  size: number;
  /** The first trend that one of its steps has. */
  trend: Trend;
  /** The trend of its last step. */
  last: Trend;
}

export class Bars {
  bars: Bar[] = [];
  /** How many steps a bar stands for: a power of two, so that taking in a step touches one bar. */
  span = 1;
  private taken = 0;
  private of: number[] | undefined;

  constructor(private most: number) {}

  /** Take in the steps that are new. */
  follow({ sizes, trends }: Course): this {
    if (sizes !== this.of) [this.of, this.bars, this.span, this.taken] = [sizes, [], 1, 0];
    for (; this.taken < sizes.length; this.taken++) {
      if (this.taken === this.most * this.span) this.halve();
      this.take({ size: sizes[this.taken]!, trend: trends[this.taken]!, last: trends[this.taken]! });
    }
    return this;
  }

  private take(step: Bar): void {
    const at = this.barOf(this.taken),
      known = this.bars[at];
    this.bars[at] = known ? merged(known, step) : step;
  }

  private halve(): void {
    this.span *= 2;
    this.bars = this.bars.filter((_, i) => i % 2 === 0).map((bar, i) => (this.bars[2 * i + 1] ? merged(bar, this.bars[2 * i + 1]!) : bar));
  }

  /** The bar in which a step stands. */
  barOf(step: number): number {
    return Math.floor(step / this.span);
  }

  /** The bars at which a trend begins. */
  beginnings(): number[] {
    return [...this.bars.keys()].filter((at) => this.bars[at]!.trend !== "" && this.bars[at - 1]?.last !== this.bars[at]!.trend);
  }
}

function merged(one: Bar, next: Bar): Bar {
  return { size: Math.max(one.size, next.size), trend: one.trend || next.trend, last: next.last };
}

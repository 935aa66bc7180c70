// What goes wrong on a tape, in words: overwrites and what the last backward() found.

import { bytes, count, html, place as placed } from "./dom";
import type { Finding, Overwrite } from "./protocol";
import type { Store } from "./store";

const MOST = 6;

/** What is the matter with the line at which `backward` found something. */
const AT: Record<string, string> = { cut: "the gradient ends here:", "not-finite": "it is not finite here:" };

interface Problem {
  key: string;
  record: number;
  memory: number | null;
  grave: boolean;
  sentence: string;
  hint: string;
  lines: [string, string, string][];
  times: number;
}

function overwritten(store: Store, one: Overwrite, times: number): Problem {
  const memory = store.memoryOf(one.array),
    name = store.name(memory);
  const reader = one.reader < 0 ? "a launch" : `${one.reader + 1} (${store.step(one.reader).title})`;
  const writer = one.writer < 0 ? "a line outside of the tape," : `${one.writer + 1} (${store.step(one.writer).title}),`;
  const names = one.affects.map((affected) => store.name(affected)).join(" and ");
  const price = {
    saved: `${bytes(one.bytes)} were kept first, so the gradients stay right`,
    tainted: `the gradient of ${names || "what it read"} would be wrong`,
    refused: "the write was refused",
  }[one.outcome];
  const hint =
    one.outcome === "saved"
      ? "write into another array, and nothing needs to be kept"
      : 'write into another array, or use Tape(overwrite="save")';
  return {
    key: String(one.clash),
    record: one.writer < 0 ? one.reader : one.writer,
    memory,
    grave: one.outcome !== "saved",
    hint,
    times,
    sentence: `${name} is overwritten by ${writer} but the adjoint of ${reader} needs its old values: ${price}`,
    lines: [
      ["read", ...one.read],
      ["written", ...one.wrote],
    ],
  };
}

function found(store: Store, one: Finding): Problem {
  return {
    key: one.message + one.at[0],
    record: store.recordAt(one.at[0]),
    memory: null,
    grave: true,
    sentence: one.message,
    hint: one.hint,
    times: 1,
    lines: [[AT[one.code] ?? "here:", ...one.at], ...one.related],
  };
}

/** The problems of a tape, equal ones together, the grave ones first. */
export function problemsOf(store: Store): Problem[] {
  const distinct = new Map(store.data.findings.map((one) => found(store, one)).map((problem) => [problem.key, problem]));
  const clashes = [...store.clashes.values()].map(({ first, times }) => overwritten(store, first, times));
  return [...distinct.values(), ...clashes].sort((one, other) => Number(other.grave) - Number(one.grave));
}

export class Problems {
  /** Screen readers announce what is added to it. */
  readonly element = html("div", {
    class: "klt-problems",
    role: "log",
    "aria-label": "warnings",
    "aria-live": "polite",
    "aria-relevant": "additions",
  });
  private items = new Map<string, { element: HTMLElement; often: Text }>();
  private more = html("p", { class: "klt-more" });

  constructor(
    private store: Store,
    private pick: (record: number, memory: number | null) => void,
  ) {}

  update(): void {
    const problems = problemsOf(this.store),
      before = this.items;
    this.items = new Map();
    const elements = problems.slice(0, MOST).map((problem) => {
      const key = problem.sentence + problem.record;
      const item = before.get(key) ?? this.item(problem);
      const often = problem.times > 1 ? ` (${count(problem.times, "time")})` : "";
      if (item.often.data !== often) item.often.data = often;
      this.items.set(key, item);
      return item.element;
    });
    const more = problems.length > MOST ? `and ${problems.length - MOST} more` : "";
    if (this.more.textContent !== more) this.more.textContent = more;
    // What is told already stays where it is, so that nobody hears it twice.
    [...elements, this.more].forEach((element, i) => {
      if (this.element.children[i] !== element) this.element.insertBefore(element, this.element.children[i] ?? null);
    });
    for (const gone of [...this.element.children].slice(elements.length + 1)) gone.remove();
  }

  private item(problem: Problem): { element: HTMLElement; often: Text } {
    const often = document.createTextNode("");
    const lines = problem.lines
      .filter(([, place]) => place)
      .flatMap(([what, place, text]) => [html("dt", {}, what), html("dd", {}, html("code", {}, text), " ", placed(place))]);
    const show =
      problem.record < 0
        ? []
        : [html("button", { type: "button", class: "klt-link", click: () => this.pick(problem.record, problem.memory) }, "show")];
    const element = html(
      "div",
      { class: problem.grave ? "klt-problem klt-grave" : "klt-problem" },
      html("p", {}, html("b", {}, problem.grave ? "⚠ warning: " : "✓ kept: "), problem.sentence, often, " ", ...show),
      html("dl", {}, ...lines),
      ...(problem.hint ? [html("p", { class: "klt-quiet" }, `To do: ${problem.hint}`)] : []),
    );
    return { element, often };
  }
}

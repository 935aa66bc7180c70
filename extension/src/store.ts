// The tape as the page knows it, put together from a snapshot and news.

import type { Growing, Message, Model, News, Others, Overwrite, Step } from "./protocol";

export const PARTS = [
  "memories",
  "layouts",
  "arrays",
  "kinds",
  "steps",
  "records",
  "times",
  "clashes",
  "overwrites",
  "sweep",
  "scopes",
  "names",
] as const;

type Data = Growing & Others;

function empty(): Data {
  return {
    memories: [],
    layouts: [],
    arrays: [],
    kinds: [],
    steps: [],
    records: [],
    times: [],
    clashes: [],
    overwrites: [],
    sweep: [],
    scopes: [],
    names: [],
    sweeps: 0,
    findings: [],
  };
}

export class Store {
  data: Data = empty();
  epoch = -1;
  /** The memories that each record writes, with the version that they have then. */
  versions: [memory: number, version: number][][] = [];
  overwrites: Overwrite[] = [];
  savedBytes = 0;
  /** The first overwrite of each clash, and how many there are. */
  clashes = new Map<number, { first: Overwrite; times: number }>();
  /** The memories that were overwritten without a copy. */
  wronged = new Set<number>();
  /** Whether a line outside of the tape has overwritten something. */
  outside = false;
  /** The records that write each memory, in order. */
  private writers: number[][] = [];
  private views: number[][] = [];
  private steps: Step[] = [];
  private looked = 0;
  private overwritesAt = new Map<number, Overwrite[]>();
  private firstAt = new Map<string, number>();
  private called = new Map<number, string>();
  private holders = new Map<string, number>();
  private named = 0;
  /** For how many memories the name of a parameter may stand. */
  private guesses = new Map<string, number>();
  private guessed = 0;
  private depths: number[] = [];
  private scoped = 0;
  private heard = new Set<() => void>();

  /** Take news in; false if something between is missing, so that the whole has to be asked for. */
  apply(news: News): boolean {
    if (news.epoch !== this.epoch) this.begin(news.epoch);
    if (news.sweeps !== undefined && news.sweeps !== this.data.sweeps) this.data.sweep = [];
    if (PARTS.some((part) => (news.from[part] ?? 0) > this.data[part].length)) return false;
    for (const part of PARTS) grow<unknown>(this.data[part], news[part], news.from[part] ?? 0);
    const { findings, sweeps } = { ...this.data, ...news };
    Object.assign(this.data, { findings, sweeps });
    this.describe();
    this.count();
    this.index();
    this.heard.forEach((callback) => callback());
    return true;
  }

  private begin(epoch: number): void {
    this.data = empty();
    this.epoch = epoch;
    this.versions = [];
    this.overwrites = [];
    this.overwritesAt.clear();
    this.clashes.clear();
    this.wronged.clear();
    this.firstAt.clear();
    this.called.clear();
    this.holders.clear();
    this.guesses.clear();
    this.depths = [];
    this.savedBytes = this.looked = this.guessed = this.named = this.scoped = 0;
    this.outside = false;
    this.writers = [];
    this.views = [];
    this.steps = [];
  }

  private describe(): void {
    const { kinds, steps } = this.data;
    for (const [kind, reads, writes] of steps.slice(this.steps.length)) {
      const known = kinds[kind]!;
      const named = (names: string[], arrays: number[]) => arrays.map((array, i): [string, number] => [names[i]!, array]);
      this.steps.push({ ...known, reads: named(known.reads, reads), writes: named(known.writes, writes) });
    }
  }

  private count(): void {
    for (let record = this.versions.length; record < this.data.records.length; record++) {
      const { place } = this.step(record);
      if (!this.firstAt.has(place)) this.firstAt.set(place, record);
      const written = new Set(this.step(record).writes.map(([, array]) => this.memoryOf(array)));
      this.versions.push([...written].map((memory) => [memory, (this.writers[memory] ??= []).push(record)]));
    }
  }

  /** What is looked up often: overwrites and scopes by record, and names and the arrays over each memory. */
  private index(): void {
    const { overwrites, clashes, arrays, memories, names, scopes } = this.data;
    for (; this.guessed < memories.length; this.guessed++) {
      const [parameter] = memories[this.guessed]!;
      this.guesses.set(parameter, (this.guesses.get(parameter) ?? 0) + 1);
    }
    for (; this.named < names.length; this.named++) this.rename(...names[this.named]!);
    for (; this.scoped < scopes.length; this.scoped++) {
      const [, begin, end] = scopes[this.scoped]!;
      for (let record = begin; record < end; record++) this.depths[record] = this.depthOf(record) + 1;
    }
    for (const [clash, reader, writer, array, bytes, affects] of overwrites.slice(this.overwrites.length)) {
      const made = { ...clashes[clash]!, clash, reader, writer, array, bytes, affects };
      this.overwrites.push(made);
      this.savedBytes += bytes;
      const known = this.clashes.get(clash);
      if (known) known.times++;
      else this.clashes.set(clash, { first: made, times: 1 });
      if (made.outcome !== "saved") this.wronged.add(this.memoryOf(array));
      this.outside ||= writer < 0;
      for (const record of [reader, writer]) {
        const others = this.overwritesAt.get(record);
        if (others) others.push(made);
        else this.overwritesAt.set(record, [made]);
      }
    }
    for (; this.looked < arrays.length; this.looked++) (this.views[arrays[this.looked]![0]] ??= []).push(this.looked);
  }

  listen(callback: () => void): () => void {
    this.heard.add(callback);
    return () => this.heard.delete(callback);
  }

  get length(): number {
    return this.data.records.length;
  }

  step(record: number): Step {
    return this.steps[this.data.records[record]!]!;
  }

  memoryOf(array: number): number {
    return this.data.arrays[array]![0];
  }

  /** What the notebook calls an array over a memory, else a parameter that took one, unless another array has that name. */
  name(memory: number): string {
    return this.called.get(memory) ?? this.parameterOf(memory) ?? `array ${memory + 1}`;
  }

  /** The parameter whose name stands for a memory that has none, with a number where it stands for several. */
  parameterOf(memory: number): string | undefined {
    const parameter = this.data.memories[memory]?.[0];
    if (parameter === undefined || this.holders.has(parameter)) return undefined;
    return this.guesses.get(parameter)! > 1 ? `${parameter}#${memory + 1}` : parameter;
  }

  /** A memory gets a name, which another one loses. */
  private rename(memory: number, name: string): void {
    const [last, before] = [this.holders.get(name), this.called.get(memory)];
    if (last !== undefined) this.called.delete(last);
    if (before !== undefined) this.holders.delete(before);
    this.called.set(memory, name);
    this.holders.set(name, memory);
  }

  isNamed(memory: number): boolean {
    return this.called.has(memory);
  }

  /** In how many scopes a record stands. */
  depthOf(record: number): number {
    return this.depths[record] ?? 0;
  }

  hasGradient(memory: number): boolean {
    return this.data.memories[memory]?.[2] ?? false;
  }

  /** "float32, 10 × 3": what an array holds. */
  layout(array: number): string {
    const [dtype, shape] = this.data.layouts[this.data.arrays[array]![1]]!;
    return `${dtype}, ${shape.join(" × ")}`;
  }

  /** The first array over a memory that the tape met. */
  firstArray(memory: number): number {
    return this.views[memory]?.[0] ?? 0;
  }

  arraysOf(memory: number): number[] {
    return this.views[memory] ?? [];
  }

  /** How often the tape has written a memory. */
  writesOf(memory: number): number {
    return this.writers[memory]?.length ?? 0;
  }

  shape(array: number): number[] {
    return this.data.layouts[this.data.arrays[array]![1]]![1];
  }

  /** The memory's version once a record has run: how often the tape had written it. */
  versionAfter(memory: number, record: number): number {
    const writers = this.writers[memory] ?? [];
    let [low, high] = [0, writers.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (writers[middle]! <= record) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The first record of a line, by what its place is called; -1 if there is none. */
  recordAt(place: string): number {
    return this.firstAt.get(place) ?? -1;
  }

  overwritesOf(record: number): Overwrite[] {
    return this.overwritesAt.get(record) ?? [];
  }
}

/** Append what is new of rows of which the first has the number `from`. */
function grow<T>(known: T[], rows: T[] | undefined, from: number): void {
  for (const row of rows?.slice(known.length - from) ?? []) known.push(row);
}

/** The store of a model, which follows what Python sends until `leave` is called. */
export function storeOf(model: Model): { store: Store; leave: () => void } {
  const store = new Store();
  const whole = () => {
    const text = model.get("snapshot");
    if (text) store.apply(JSON.parse(text) as News);
  };
  const heard = (message: Message) => {
    if (message.op === "news" && message.news && !store.apply(message.news)) model.send({ op: "settle" });
  };
  whole();
  model.on("change:snapshot", whole);
  model.on("msg:custom", heard);
  return {
    store,
    leave: () => {
      model.off("change:snapshot", whole);
      model.off("msg:custom", heard);
    },
  };
}

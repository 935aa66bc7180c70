// The tape as the page knows it, put together from a snapshot and news.

import type { Growing, Model, News, Others, Overwrite, Step } from "./protocol";

export const PARTS = ["memories", "layouts", "arrays", "kinds", "steps", "records", "times", "clashes", "overwrites"] as const;
const OTHERS = ["scopes", "findings", "sweep", "names"] as const;

function empty(): Growing & Others {
  return {
    memories: [], layouts: [], arrays: [], kinds: [], steps: [], records: [], times: [], clashes: [], overwrites: [],
    scopes: [], findings: [], sweep: [], names: {},
  };
}

export class Store {
  data: Growing & Others = empty();
  epoch = -1;
  /** How often a memory had been written after each record that writes it: pairs, by record. */
  versions: [memory: number, version: number][][] = [];
  overwrites: Overwrite[] = [];
  savedBytes = 0;
  /** Whether a line outside of the tape has overwritten something. */
  outside = false;
  private counts: number[] = [];
  private first: number[] = [];
  private looked = 0;
  private overwritesAt = new Map<number, Overwrite[]>();
  private heard = new Set<() => void>();

  /** Take news in; false if something between is missing, so that the whole has to be asked for. */
  apply(news: News): boolean {
    if (news.epoch !== this.epoch) {
      this.data = empty();
      this.epoch = news.epoch;
      this.versions = [];
      this.overwrites = [];
      this.overwritesAt.clear();
      this.savedBytes = this.looked = 0;
      this.outside = false;
      this.counts = [];
      this.first = [];
    }
    for (const part of PARTS) {
      if ((news.from[part] ?? 0) > this.data[part].length) return false;
    }
    for (const part of PARTS) {
      const rows = news[part];
      if (!rows) continue;
      const known = this.data[part] as unknown[];
      for (const row of rows.slice(known.length - (news.from[part] ?? 0))) known.push(row);
    }
    for (const other of OTHERS) {
      if (news[other] !== undefined) (this.data as any)[other] = news[other];
    }
    this.count();
    this.index();
    this.heard.forEach((callback) => callback());
    return true;
  }

  private count(): void {
    for (let i = this.versions.length; i < this.data.records.length; i++) {
      const written = new Set(this.step(i).writes.map(([, array]) => this.memoryOf(array)));
      this.versions.push([...written].map((memory) => {
        this.counts[memory] = (this.counts[memory] ?? 0) + 1;
        return [memory, this.counts[memory]!];
      }));
    }
  }

  /** What is looked up often: overwrites by record, and the first array over each memory. */
  private index(): void {
    const { overwrites, clashes, arrays } = this.data;
    for (const [clash, reader, writer, array, bytes, affects] of overwrites.slice(this.overwrites.length)) {
      const made = { ...clashes[clash]!, clash, reader, writer, array, bytes, affects };
      this.overwrites.push(made);
      this.savedBytes += bytes;
      this.outside ||= writer < 0;
      for (const record of [reader, writer]) {
        const known = this.overwritesAt.get(record);
        if (known) known.push(made);
        else this.overwritesAt.set(record, [made]);
      }
    }
    for (; this.looked < arrays.length; this.looked++) this.first[arrays[this.looked]![0]] ??= this.looked;
  }

  listen(callback: () => void): () => void {
    this.heard.add(callback);
    return () => this.heard.delete(callback);
  }

  get length(): number {
    return this.data.records.length;
  }

  step(record: number): Step {
    const [kind, reads, writes] = this.data.steps[this.data.records[record]!]!, known = this.data.kinds[kind]!;
    const named = (names: string[], arrays: number[]) => arrays.map((array, i) => [names[i]!, array] as [string, number]);
    return { ...known, reads: named(known.reads, reads), writes: named(known.writes, writes) };
  }

  memoryOf(array: number): number {
    return this.data.arrays[array]![0];
  }

  /** What the notebook calls an array over a memory, else a parameter that took one. */
  name(memory: number): string {
    return this.data.names[memory] ?? this.data.memories[memory]?.[0] ?? `array ${memory + 1}`;
  }

  isNamed(memory: number): boolean {
    return memory in this.data.names;
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
    return this.first[memory] ?? 0;
  }

  shape(array: number): number[] {
    return this.data.layouts[this.data.arrays[array]![1]]![1];
  }

  /** The memory's version once a record has run: how often the tape had written it. */
  versionAfter(memory: number, record: number): number {
    for (let i = record; i >= 0; i--) {
      const found = this.versions[i]!.find(([one]) => one === memory);
      if (found) return found[1];
    }
    return 0;
  }

  overwritesOf(record: number): Overwrite[] {
    return this.overwritesAt.get(record) ?? [];
  }
}

/** The store of a model, which follows what Python sends. */
export function storeOf(model: Model): Store {
  const store = new Store();
  const whole = () => {
    const text = model.get("snapshot");
    if (text) store.apply(JSON.parse(text) as News);
  };
  whole();
  model.on("change:snapshot", whole);
  model.on("msg:custom", (message: { op?: string; news?: News }) => {
    if (message.op === "news" && message.news && !store.apply(message.news)) model.send({ op: "settle" });
  });
  return store;
}

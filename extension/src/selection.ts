// What the reader has picked: a record, an array's memory; all parts of a view follow it.

export class Selection {
  record: number | null = null;
  memory: number | null = null;
  private heard: (() => void)[] = [];

  pick(record: number | null, memory: number | null = this.memory): void {
    if (record === this.record && memory === this.memory) return;
    this.record = record;
    this.memory = memory;
    this.heard.forEach((callback) => callback());
  }

  listen(callback: () => void): void {
    this.heard.push(callback);
  }
}

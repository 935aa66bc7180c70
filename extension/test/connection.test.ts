import { beforeEach, expect, test, vi } from "vitest";
import { Connection } from "../src/connection";
import { FakeModel } from "./model";

class Signal {
  slots = new Set<(sender: unknown, value: any) => void>();
  connect = (slot: (sender: unknown, value: any) => void) => void this.slots.add(slot);
  disconnect = (slot: (sender: unknown, value: any) => void) => void this.slots.delete(slot);
  emit = (value: unknown) => this.slots.forEach((slot) => slot(this, value));
}

let model: FakeModel, connection: Connection, session: Record<"statusChanged" | "kernelChanged", Signal>;
const told = () => connection.element.textContent;

beforeEach(() => {
  vi.useFakeTimers();
  model = new FakeModel();
  session = { statusChanged: new Signal(), kernelChanged: new Signal() };
  model.widget_manager = { context: { sessionContext: session } };
  connection = new Connection(model);
  connection.greet();
});

test("a kernel that does not answer is told of, until it does", () => {
  expect([model.greeted, told()]).toEqual([1, ""]);
  vi.runAllTimers();
  expect(told()).toContain("not connected: the kernel that made this view does not answer");
  model.message({ op: "here" });
  expect(told()).toBe("");
});

test("a kernel that answers in time is not told of", () => {
  model.message({ op: "here" });
  vi.runAllTimers();
  expect(told()).toBe("");
});

test("a kernel that is restarted, or changed for another, has ended", () => {
  session.statusChanged.emit("busy");
  session.kernelChanged.emit({ oldValue: null });
  expect(told()).toBe("");
  session.statusChanged.emit("restarting");
  expect(told()).toContain("has ended");
  model.message({ op: "here" });
  session.kernelChanged.emit({ oldValue: {} });
  expect(told()).toContain("has ended");
});

test("a host that refuses a message says that the kernel has ended", () => {
  vi.spyOn(console, "debug").mockImplementation(() => {});
  model.send = () => {
    throw new Error("Cannot send");
  };
  expect([connection.send({ op: "settle" }), told()]).toEqual([false, expect.stringContaining("has ended")]);
});

test("a closed connection listens to nobody", () => {
  connection.close();
  vi.runAllTimers();
  expect([model.listeners("msg:custom"), session.statusChanged.slots.size, told()]).toEqual([0, 0, ""]);
});

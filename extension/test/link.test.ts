import { expect, test } from "vitest";
import { Link } from "../src/lab/link";
import { READY } from "../src/lab/messages";
import { examples } from "./examples";
import { FakeKernel, settled } from "./fake_kernel";

const reply = { version: 1, id: 1, diagnostics: [], names: [] };

function asked() {
  const kernel = new FakeKernel(),
    link = new Link(kernel.connection);
  const check = (text: string, lane?: string) => link.ask("check", { text, cell: "a" }, lane);
  return { kernel, link, check };
}

test.each(examples)("%s is what is sent, and its reply is what is heard", async (_, { request, reply }) => {
  const { kernel, link } = asked(),
    { version, id, kind, ...rest } = request;
  const answer = link.ask(kind, rest);
  await settled();
  expect(kernel.comm.sent).toEqual([request]);
  expect([version, id]).toEqual([1, 1]);
  kernel.comm.say(reply);
  expect(await answer).toEqual("error" in reply ? null : reply);
});

test("nothing is sent to a kernel before something is asked", async () => {
  const { kernel } = asked();
  await settled();
  expect(kernel.comms).toEqual([]);
});

test("one question is under way; of each lane the newest waits, and the newest of all is the next", async () => {
  const { kernel, check } = asked(),
    first = check("one"),
    second = check("two"),
    third = check("three"),
    other = check("four", "other");
  expect(await second).toBeNull();
  await settled();
  expect(kernel.comm.sent.map(({ text }) => text)).toEqual(["one"]);
  kernel.comm.say(reply);
  expect(await first).toEqual(reply);
  await settled();
  kernel.comm.say({ ...reply, id: 2 });
  expect((await other)?.diagnostics).toEqual([]);
  await settled();
  kernel.comm.say({ ...reply, id: 3 });
  expect((await third)?.diagnostics).toEqual([]);
  expect(kernel.comm.sent.map(({ text }) => text)).toEqual(["one", "four", "three"]);
  void check("five");
  await settled();
  expect(kernel.comm.sent.at(-1).text).toBe("five");
});

test("a kernel that does not know kernelab is asked again once it has loaded it", async () => {
  const { kernel, link, check } = asked(),
    first = check("one"),
    heard: string[] = [];
  link.events.connect((_, { event }) => heard.push(event));
  await settled();
  kernel.comm.onClose({});
  expect(await first).toBeNull();
  expect(await check("two")).toBeNull();
  expect(kernel.comms).toHaveLength(1);
  kernel.targets.get(READY)!({});
  await settled();
  expect(kernel.comms).toHaveLength(2);
  kernel.comm.say({ version: 1, event: "ready" });
  expect(heard).toEqual(["ready"]);
  void check("three");
  await settled();
  expect(kernel.comm.sent.map(({ text }) => text)).toEqual(["three"]);
});

test("a question to a kernel that restarts has no answer, and the next goes over a comm of its own", async () => {
  const { kernel, link, check } = asked(),
    first = check("one"),
    heard: string[] = [];
  link.events.connect((_, { event }) => heard.push(event));
  await settled();
  kernel.statusChanged.emit("busy");
  kernel.statusChanged.emit("restarting");
  expect(heard).toEqual(["ended"]);
  expect(await first).toBeNull();
  void check("two");
  await settled();
  expect(kernel.comms).toHaveLength(2);
});

test("a question that was lost with the connection has no answer, and the comm is used again", async () => {
  const { kernel, link, check } = asked(),
    first = check("one"),
    heard: string[] = [];
  link.events.connect((_, { event }) => heard.push(event));
  await settled();
  kernel.connectionStatusChanged.emit("connecting");
  expect(await first).toBeNull();
  kernel.connectionStatusChanged.emit("connected");
  expect(heard).toEqual(["ready"]);
  void check("two");
  await settled();
  expect(kernel.comms).toHaveLength(1);
  expect(kernel.comm.sent.map(({ text }) => text)).toEqual(["one", "two"]);
});

test("a comm waits for its subshell where the kernel has them", async () => {
  const { kernel, check } = asked();
  let start = () => {};
  kernel.supportsSubshells = true;
  const create = kernel.createComm.bind(kernel);
  kernel.createComm = () => Object.assign(create(), { subshellStarted: new Promise<void>((resolve) => (start = resolve)) });
  void check("one");
  await settled();
  expect(kernel.comm.isOpen).toBe(false);
  start();
  await settled();
  expect([kernel.comm.isOpen, kernel.comm.sent.length]).toEqual([true, 1]);
});

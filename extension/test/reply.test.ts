import { beforeEach, expect, test, vi } from "vitest";
import type { Target } from "../src/elements";
import { Connection } from "../src/connection";
import { Reply } from "../src/reply";
import { FakeModel } from "./model";

let model: FakeModel, went: Target[], reply: Reply, connection: Connection;

beforeEach(() => {
  vi.useFakeTimers();
  model = new FakeModel();
  went = [];
  connection = new Connection(model);
  reply = new Reply(model, connection, (to) => went.push(to));
});

const answered = (html: string) => model.message({ op: "answer", id: model.sent.at(-1).id, html });

test("an answer stands where its question was, and what it marks can be clicked", () => {
  reply.ask({ ask: "array", number: 0 }, "the values");
  expect(reply.element.textContent).toContain("asking for the values");
  answered("<table><tr><td data-asks='record 2'>square</td></tr></table>");
  reply.element.querySelector<HTMLElement>(".klt-cell")!.click();
  expect(went).toEqual([{ to: "record", record: 2 }]);
});

test("who added to an element stands below the gradient", () => {
  reply.ask({ ask: "array", number: 0 }, "the values");
  answered("<p>gradient</p>");
  for (const part of ["first", "second"]) {
    reply.ask({ ask: "element", number: 0, index: [1] }, "who added", true);
    answered(`<p>${part}</p>`);
  }
  expect([...reply.element.querySelectorAll(".klt-part")].map((one) => one.textContent)).toEqual(["gradient", "second"]);
});

test("a kernel that does not answer is told of", () => {
  reply.ask({ ask: "array", number: 0 }, "the values");
  vi.advanceTimersByTime(5000);
  expect(reply.element.textContent).toContain("No answer");
});

test("the answer is closed by its button, and a late one stays away", () => {
  reply.ask({ ask: "array", number: 0 }, "the values");
  const late = model.sent.at(-1).id;
  answered("<p>here</p>");
  reply.element.querySelector<HTMLElement>("[aria-label='close the answer']")!.click();
  model.message({ op: "answer", id: late, html: "<p>again</p>" });
  expect(reply.element.textContent).toBe("");
});

test("a closed view hears no answers", () => {
  connection.close();
  reply.close();
  expect(model.listeners("msg:custom")).toBe(0);
});

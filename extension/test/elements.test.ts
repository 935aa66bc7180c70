import { beforeEach, expect, test } from "vitest";
import { arm, elementAt, target, type Target } from "../src/elements";

let answer: HTMLElement;
let went: Target[];

beforeEach(() => {
  answer = document.createElement("div");
  went = [];
});

function armed(html: string): void {
  answer.innerHTML = html;
  arm(answer, (to) => went.push(to));
}

test("a mark says where it leads", () => {
  expect(target("element 3,1")).toEqual({ to: "element", index: [3, 1] });
  expect(target("record 4")).toEqual({ to: "record", record: 4 });
  expect(target("thread 4 2,1")).toEqual({ to: "thread", record: 4, place: [2, 1] });
  expect(target("anything else")).toBeUndefined();
});

test("a marked cell becomes a button with a name", () => {
  armed("<table><tr><td>1</td><td data-asks='element 1'>0.5</td></tr></table>");
  const button = answer.querySelector("button")!;
  expect(button.getAttribute("aria-label")).toBe("element [1] is 0.5: who added to this element?");
  button.click();
  expect(went).toEqual([{ to: "element", index: [1] }]);
  expect(answer.querySelectorAll("td")[1]!.textContent).toBe("0.5");
});

test("a place of a picture is an element of the array", () => {
  expect(elementAt({ elements: "10,20" }, 0.5, 0.95)).toEqual([9, 10]);
  expect(elementAt({ elements: "10,20", step: "3" }, 0, 0.15)).toEqual([3, 0]);
  expect(elementAt({ elements: "5,10,20" }, 1, 1)).toEqual([0, 9, 19]);
  expect(elementAt({ elements: "41", left: "0.2" }, 0.6, 0.3)).toEqual([20]);
  expect(elementAt({ elements: "40", left: "0.2" }, 0.1, 0.3)).toEqual([0]);
});

test("a click into a picture asks for what is there", () => {
  armed("<div data-elements='4,4'><svg></svg></div>");
  const picture = answer.querySelector("svg")!;
  picture.getBoundingClientRect = () => ({ left: 100, top: 100, width: 40, height: 40 }) as DOMRect;
  picture.dispatchEvent(new MouseEvent("click", { clientX: 125, clientY: 138, bubbles: true }));
  expect(went).toEqual([{ to: "element", index: [3, 2] }]);
});

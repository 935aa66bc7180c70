import { expect, test } from "vitest";
import { graphOf } from "../src/diagram";
import { type Box, layout } from "../src/layout";
import { Store } from "../src/store";
import { tape } from "./model";

/** Launches that square x into y and scale y into z, in two scopes of which one holds the other. */
function drawn() {
  const store = new Store();
  store.apply(
    tape(4, {
      kinds: ["a", "b", "c", "d"].map((title) => ({ title, kind: "launch", place: title, grid: [4], reads: ["in"], writes: ["out"] })),
      memories: ["u", "v", "w", "x", "y"].map((name) => [name, 4, true]),
      arrays: [0, 1, 2, 3, 4].map((memory) => [memory, 0]),
      names: [],
      steps: [0, 1, 2, 3].map((i) => [i, [i], [i + 1]]),
      records: [0, 1, 2, 3],
      scopes: [
        ["inner", 1, 3],
        ["outer", 0, 3],
      ],
    }),
  );
  return graphOf(store);
}

const edges = ({ x, y, width, height }: Box) => ({
  left: x - width / 2,
  right: x + width / 2,
  top: y - height / 2,
  bottom: y + height / 2,
});

test("an array stands in the innermost frame of all that use it", () => {
  const labels = Object.fromEntries(drawn().frames.map(({ id, label }) => [id, label]));
  const parents = Object.fromEntries(drawn().nodes.map(({ label, parent }) => [label, parent && labels[parent]]));
  expect(parents).toEqual({
    a: "outer",
    b: "inner",
    c: "inner",
    d: undefined,
    "u ∇": "outer",
    "v ∇": "outer",
    "w ∇": "inner",
    "x ∇": undefined,
    "y ∇": undefined,
  });
});

test("what is in a frame stands in its box, and beside what else is there", () => {
  const graph = drawn(),
    { boxes } = layout(graph),
    all = [...graph.nodes, ...graph.frames];
  for (const one of all) {
    const box = edges(boxes.get(one.id)!);
    if (one.parent) {
      const around = edges(boxes.get(one.parent)!);
      expect([box.left >= around.left, box.right <= around.right, box.top >= around.top + 12, box.bottom <= around.bottom]).toEqual([
        true,
        true,
        true,
        true,
      ]);
    }
    for (const other of all.filter(({ id, parent }) => id !== one.id && parent === one.parent)) {
      const beside = edges(boxes.get(other.id)!);
      expect(box.right <= beside.left || beside.right <= box.left || box.bottom <= beside.top || beside.bottom <= box.top).toBe(true);
    }
  }
});

test("each line leads from its one node to the other, through frames", () => {
  const graph = drawn(),
    { boxes, lines } = layout(graph);
  graph.edges.forEach(([from, to], i) => {
    for (const [id, point] of [
      [from, lines[i]![0]!],
      [to, lines[i]!.at(-1)!],
    ] as const) {
      const box = edges(boxes.get(id)!);
      expect([point.x > box.left - 2, point.x < box.right + 2, point.y > box.top - 2, point.y < box.bottom + 2]).toEqual([
        true,
        true,
        true,
        true,
      ]);
    }
  });
});

test("a line out of a frame runs through no other node", () => {
  const store = new Store();
  store.apply(
    tape(0, {
      kinds: ["step", "energy"].map((title) => ({ title, kind: "launch", place: title, grid: [8], reads: ["in"], writes: ["out"] })),
      memories: ["x", "v", "loss"].map((name) => [name, 8, true]),
      arrays: [0, 1, 2].map((memory) => [memory, 0]),
      names: [],
      steps: [
        [0, [0, 1], [0, 1]],
        [1, [1], [2]],
      ],
      records: [0, 0, 0, 0, 0, 1],
      times: [],
    }),
  );
  const graph = graphOf(store),
    { boxes, lines } = layout(graph),
    passed: string[] = [];
  graph.edges.forEach(([from, to], i) => {
    for (const { id, label } of graph.nodes.filter((node) => node.id !== from && node.id !== to)) {
      const box = edges(boxes.get(id)!);
      lines[i]!.slice(1).forEach((end, k) => {
        for (let t = 0; t <= 1; t += 0.02) {
          const [x, y] = [lines[i]![k]!.x * (1 - t) + end.x * t, lines[i]![k]!.y * (1 - t) + end.y * t];
          if (x > box.left && x < box.right && y > box.top && y < box.bottom) passed.push(`${from} to ${to} through ${label}`);
        }
      });
    }
  });
  expect(graph.frames.map(({ label }) => label)).toEqual(["5 times"]);
  expect(passed).toEqual([]);
});

test("what is done to other arrays in turn is folded, and the first and last of them are named", () => {
  const many = 40,
    store = new Store(),
    numbers = Array.from({ length: many }, (_, i) => i);
  store.apply(
    tape(0, {
      memories: [...numbers, many].map((i) => [`x${i}`, 4, true]),
      arrays: [...numbers, many].map((memory) => [memory, 0]),
      names: [],
      steps: numbers.map((i) => [0, [i], [i + 1]]),
      records: numbers,
      times: [],
    }),
  );
  const graph = graphOf(store),
    name = ["r0", "m0"];
  expect(graph.nodes.map(({ label, detail }) => [label, detail])).toEqual([
    ["square", "1000"],
    ["x0 … x40 ∇", "41 arrays"],
  ]);
  expect([graph.frames.map(({ label }) => label), graph.edges]).toEqual([
    ["40 times"],
    [
      ["m0", "r0"],
      ["r0", "m0"],
    ],
  ]);
  expect([graph.launch(17), graph.array(23)]).toEqual(name);
});

test("the lines of an array that all launches of a chain read stay within the picture", () => {
  const store = new Store(),
    launches = [...Array(8).keys()];
  store.apply(
    tape(8, {
      kinds: [{ title: "step", kind: "launch", place: "here", grid: [4], reads: ["x", "v", "k"], writes: ["x1", "v1"] }],
      memories: ["k", ...launches.flatMap((i) => [`x${i}`, `v${i}`]), "x8", "v8"].map((name) => [name, 4, true]),
      arrays: [...Array(19).keys()].map((memory) => [memory, 0]),
      names: [],
      steps: launches.map((i) => [0, [2 * i + 1, 2 * i + 2, 0], [2 * i + 3, 2 * i + 4]]),
      records: launches,
    }),
  );
  const { lines, height } = layout(graphOf(store));
  expect(lines.flat().filter(({ y }) => y < 0 || y > height)).toEqual([]);
});

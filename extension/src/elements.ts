// What can be clicked in an answer of the kernel: elements of a gradient, and the launches and threads of a table.
//
// The answer marks them: `data-asks` on a cell says what to ask, `data-elements` on a picture which array it shows.

export type Target =
  { to: "element"; index: number[] } | { to: "record"; record: number } | { to: "thread"; record: number; place: number[] };

/** "element 3,1", "record 4", "thread 4 2,1": what a mark says; nothing where it is none of these. */
export function target(asks: string): Target | undefined {
  const [to, ...words] = asks.split(" ");
  const [first, second] = words.map((word) => word.split(",").map(Number));
  if (to === "element" && first) return { to, index: first };
  if (to === "record" && first) return { to, record: first[0]! };
  if (to === "thread" && first && second) return { to, record: first[0]!, place: second };
  return undefined;
}

const HINTS = {
  element: "who added to this element?",
  record: "show this launch",
  thread: "trace this thread",
};

/** Make what an answer marks answer to clicks and to the keyboard. */
export function arm(answer: HTMLElement, go: (to: Target) => void): void {
  for (const cell of answer.querySelectorAll<HTMLElement>("[data-asks]")) {
    const to = target(cell.dataset.asks ?? "");
    if (to) armCell(cell, to, go);
  }
  for (const picture of answer.querySelectorAll<HTMLElement>("[data-elements]")) armPicture(picture, go);
}

function armCell(cell: HTMLElement, to: Target, go: (to: Target) => void): void {
  const where = to.to === "element" ? `element [${to.index.join(", ")}] is ` : "";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "klt-cell";
  button.title = HINTS[to.to];
  button.setAttribute("aria-label", `${where}${cell.textContent ?? ""}: ${HINTS[to.to]}`);
  button.append(...cell.childNodes);
  button.addEventListener("click", () => go(to));
  cell.replaceChildren(button);
}

function armPicture(holder: HTMLElement, go: (to: Target) => void): void {
  const picture = holder.querySelector("img,svg");
  if (!picture) return;
  const found = (event: Event) => {
    const { clientX, clientY } = event as MouseEvent,
      box = picture.getBoundingClientRect();
    return elementAt(holder.dataset, (clientX - box.left) / box.width, (clientY - box.top) / box.height);
  };
  holder.classList.add("klt-aim");
  picture.addEventListener("click", (event) => go({ to: "element", index: found(event) }));
  picture.addEventListener("mousemove", (event) => {
    holder.title = `element [${found(event).join(", ")}]: ${HINTS.element}`;
  });
}

/** The element at a place of a picture, in shares of its width and height. */
export function elementAt(marked: DOMStringMap, x: number, y: number): number[] {
  const extents = (marked.elements ?? "1").split(",").map(Number),
    step = Number(marked.step ?? 1),
    left = Number(marked.left ?? 0);
  const within = (position: number, extent: number) => step * Math.min(extent - 1, Math.max(0, position));
  const last = extents[extents.length - 1]!,
    share = (x - left) / (1 - left);
  // A curve goes from the first element to the last; a heatmap has a column for each.
  const across = within(left ? Math.round(share * (last - 1)) : Math.floor(share * last), last);
  if (extents.length === 1) return [across];
  // Of more than two dimensions, the picture is of the first matrix.
  const rows = extents[extents.length - 2]!;
  return [...extents.slice(0, -2).map(() => 0), within(Math.floor(y * rows), rows), across];
}

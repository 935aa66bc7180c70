// Elements from plain calls.  What comes from a notebook is always text here, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** What hears an event; its name says which kind of event it gets. */
type Listener = (event: never) => void;
type Attributes = Record<string, string | number | boolean | Listener | undefined>;
type Child = Node | string;

function fill<T extends Element>(made: T, attributes: Attributes, children: Child[]): T {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value as EventListener);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

export function html<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];

/** A slider that keeps the keys that move it: JupyterLab would go to another cell at them. */
export function slider(attributes: Attributes): HTMLInputElement {
  const keydown = (event: KeyboardEvent) => {
    if (MOVES.includes(event.key)) event.stopPropagation();
  };
  return html("input", { type: "range", keydown, ...attributes });
}

/** A place of the notebook; a button that leads there where the JupyterLab extension is. */
export function place(text: string): HTMLElement {
  const go = (globalThis as { kernelabGo?: (place: string) => void }).kernelabGo;
  return go
    ? html("button", { type: "button", class: "klt-link", click: () => go(text) }, text)
    : html("span", { class: "klt-quiet" }, text);
}

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Where an event is in a picture, in its own units: views are larger where letters are. */
export function within(picture: Element, event: MouseEvent): [x: number, y: number] {
  const box = picture.getBoundingClientRect(),
    zoom = box.width / Number(picture.getAttribute("width")) || 1;
  return [(event.clientX - box.left) / zoom, (event.clientY - box.top) / zoom];
}

export function cut(text: string, characters: number): string {
  return text.length <= characters ? text : text.slice(0, Math.max(1, characters - 1)) + "…";
}

/** A long name without its middle: names of a notebook's arrays often differ at their ends alone. */
export function shorten(name: string, characters: number): string {
  if (name.length <= characters) return name;
  const head = Math.max(1, Math.floor((characters - 1) / 3)),
    tail = Math.max(1, characters - 1 - head);
  return name.slice(0, head) + "…" + name.slice(-tail);
}

export function bytes(count: number): string {
  for (const unit of ["bytes", "kB", "MB", "GB"]) {
    if (count < 1000 || unit === "GB") return `${count < 10 && unit !== "bytes" ? count.toFixed(1) : Math.round(count)} ${unit}`;
    count /= 1000;
  }
  return "";
}

export function duration(microseconds: number): string {
  if (microseconds < 0) return "";
  if (microseconds < 1000) return `${microseconds < 10 ? microseconds.toFixed(1) : Math.round(microseconds)} µs`;
  const [value, unit] = microseconds < 1e6 ? [microseconds / 1000, "ms"] : [microseconds / 1e6, "s"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** Made once: a locale is looked up each time a number is written by itself. */
const GROUPED = new Intl.NumberFormat("en");

export function count(number: number, one: string, many = one + "s"): string {
  return `${GROUPED.format(number)} ${number === 1 ? one : many}`;
}

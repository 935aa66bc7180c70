// What the side panel shows, as elements: the warnings of a notebook, and its arrays.

import type { TranslationBundle } from "@jupyterlab/translation";
import { html } from "../dom";
import { lineNow } from "./cells";
import type { ArrayFacts, Checked, Place, Replies, Warning } from "./messages";

/** What the panel asks of the notebook beside it. */
export interface Notebook {
  /** The lines of the cell of a place by now; null where the cell is gone. */
  linesOf(place: Place): string[] | null;
  go(place: Place): void;
}

/** Four digits; text is a norm that is not finite. */
export function digits(norm: number | string): string {
  if (typeof norm === "string") return norm;
  return norm !== 0 && (Math.abs(norm) < 1e-3 || Math.abs(norm) >= 1e6) ? norm.toExponential(2) : String(Number(norm.toPrecision(4)));
}

/** What has become of a line since it ran. */
function since(place: Place, notebook: Notebook, trans: TranslationBundle): string {
  const lines = notebook.linesOf(place),
    now = lines && lineNow(lines, place);
  return now ? (now.isEdited ? trans.__("edited since") : "") : trans.__("deleted since");
}

function link(place: Place, key: string, notebook: Notebook, trans: TranslationBundle): HTMLElement {
  const where = trans.__("%1, line %2", place.label, place.line + 1);
  return html(
    "button",
    { class: "kernelab-place", "data-key": key, click: () => notebook.go(place) },
    html("span", {}, where),
    " ",
    html("small", {}, since(place, notebook, trans)),
    html("code", {}, place.text),
  );
}

/** Each warning with its lines, as buttons that lead there; the latest first. */
export function warningsShown(warnings: Warning[], notebook: Notebook, trans: TranslationBundle): HTMLElement {
  const items = [...warnings]
    .reverse()
    .map((one) =>
      html(
        "li",
        {},
        html("p", {}, one.message),
        ...[one, ...one.others].map((place, number) => link(place, `${one.key} ${number}`, notebook, trans)),
      ),
    );
  return section(trans.__("Warnings"), warnings.length, trans.__("none"), items);
}

function norm(label: string, value: number | string): HTMLElement {
  return html("span", { class: typeof value === "string" ? "kernelab-bad" : "" }, `${label} ${digits(value)}`);
}

function normsOf(one: ArrayFacts, trans: TranslationBundle): HTMLElement[] {
  const found = one.norm === null ? [] : [norm(trans.__("norm"), one.norm)];
  if (one.grad_norm !== null) found.push(norm(trans.__("gradient"), one.grad_norm));
  else if (one.requires_grad) found.push(html("span", {}, trans.__("no gradient yet")));
  return found;
}

function arrayShown(one: ArrayFacts, closed: Set<string>, trans: TranslationBundle): HTMLElement {
  const layout = `${one.dtype}[${one.shape.join(", ")}]${one.device === "cpu" ? "" : ` ${one.device}`}`;
  const requires = html("abbr", { title: trans.__("requires gradients") }, "∇");
  const facts = [
    html("b", {}, one.name),
    " ",
    html("span", {}, layout),
    ...(one.requires_grad ? [" ", requires] : []),
    html("small", {}, ...normsOf(one, trans).flatMap((norm) => [norm, " "])),
  ];
  if (!one.picture) return html("li", {}, html("div", { class: "kernelab-facts" }, ...facts));
  const picture = html("div", { class: "kernelab-picture" });
  picture.innerHTML = one.picture; // markup as in the output of a cell that has just run: of a live kernel, never of a file
  const toggled = (event: Event) =>
    void ((event.currentTarget as HTMLDetailsElement).open ? closed.delete(one.name) : closed.add(one.name));
  return html(
    "li",
    {},
    html(
      "details",
      { open: !closed.has(one.name), toggle: toggled },
      html("summary", { class: "kernelab-facts", "data-key": `array ${one.name}` }, ...facts),
      picture,
    ),
  );
}

/** The last checks, as buttons that lead to their lines. */
export function checksShown(checks: Checked[], notebook: Notebook, trans: TranslationBundle): HTMLElement[] {
  const items = checks.map((one, number) =>
    html(
      "li",
      { class: one.passed ? "kernelab-passed" : "" },
      html("p", { class: one.passed ? "" : "kernelab-bad" }, one.verdict),
      link(one, `check ${number}`, notebook, trans),
    ),
  );
  return items.length ? [section(trans.__("Checks"), items.length, "", items)] : [];
}

/** Each array with its picture, which a reader may close: `closed` has the names. */
export function arraysShown(arrays: ArrayFacts[], more: number, closed: Set<string>, trans: TranslationBundle): HTMLElement {
  const items = arrays.map((one) => arrayShown(one, closed, trans));
  if (more) items.push(html("li", {}, trans.__("and %1 more", more)));
  return section(trans.__("Arrays"), arrays.length + more, trans.__("none"), items);
}

function section(title: string, count: number, none: string, items: HTMLElement[]): HTMLElement {
  const shown = items.length ? html("ul", {}, ...items) : html("p", { class: "kernelab-none" }, none);
  return html("section", { "aria-label": title }, html("h2", {}, title, items.length ? ` (${count})` : ""), shown);
}

/** One line: device, compiler, checked mode, the launches of the tape, and how many warnings there are. */
export function stateShown({ device, compiler, checked, launches }: Replies["state"], count: number, trans: TranslationBundle): string {
  const taped = !launches ? "" : trans._n("%1 launch on the tape", "%1 launches on the tape", launches, launches);
  const warned = count ? trans._n("⚠ %1 warning", "⚠ %1 warnings", count, count) : "";
  return ["∇", device, compiler ?? trans.__("no compiler"), checked && trans.__("checked: %1", checked), taped, warned]
    .filter(Boolean)
    .join("  ");
}

/** Show other elements; the focus stays on what has the same key. */
export function replace(place: HTMLElement, ...shown: HTMLElement[]): void {
  const held = place.contains(document.activeElement) ? document.activeElement?.getAttribute("data-key") : null;
  place.replaceChildren(...shown);
  const same = [...place.querySelectorAll<HTMLElement>("[data-key]")].find((one) => one.getAttribute("data-key") === held);
  same?.focus({ preventScroll: true });
}

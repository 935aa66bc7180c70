// A host that offers what the contract of anywidget's front-end modules says, and not a thing more.
//
// Whoever asks its model for anything else, or for anything once a view's or the model's time is over, is refused.

import type { News } from "../src/protocol";
import widget from "../src/index";

type Heard = (...args: any[]) => void;
/** A model as one caller sees it, until all of its users have closed. */
interface Face {
  model: object;
  users: number;
  over: boolean;
}
type Cleanup = (() => void) | void;

export interface Manner {
  /** Some hosts give an AbortSignal, some do not. */
  signal: boolean;
  /** What the buffers of a message are. */
  buffers: "DataView" | "ArrayBuffer" | "none";
  /** Whether a view gets the very model that `initialize` got, or another face of it. */
  faces: "one" | "many";
  /** Whether views live in a shadow root. */
  shadow: boolean;
}

const EVENTS = /^(change|change:snapshot|msg:custom)$/;

export class Host {
  readonly sent: any[] = [];
  readonly refused: string[] = [];
  private heard: [face: Face, event: string, callback: Heard][] = [];
  private main = this.face();

  constructor(
    private snapshot: string,
    private manner: Manner,
    private module = widget(),
  ) {}

  get listeners(): number {
    return this.heard.length;
  }

  initialize(): () => void {
    this.main = this.face();
    return this.call(this.main, (given) => this.module.initialize(given as never));
  }

  render(): { el: HTMLElement; close: () => void } {
    const holder = document.createElement("div"),
      el = document.createElement("div");
    document.body.append(holder);
    (this.manner.shadow ? holder.attachShadow({ mode: "open" }) : holder).append(el);
    const face = this.manner.faces === "one" ? this.main : this.face();
    return { el, close: this.call(face, (given) => this.module.render({ ...given, el } as never)) };
  }

  news(news: News): void {
    this.message({ op: "news", news });
  }

  message(content: object): void {
    const buffer = new ArrayBuffer(8);
    const buffers = { DataView: [new DataView(buffer)], ArrayBuffer: [buffer], none: undefined }[this.manner.buffers];
    this.emit("msg:custom", structuredClone(content), buffers);
  }

  settle(whole: News): void {
    this.snapshot = JSON.stringify(whole);
    this.emit("change:snapshot");
  }

  private emit(event: string, ...args: unknown[]): void {
    for (const [, known, callback] of [...this.heard]) if (known === event) callback(...args);
  }

  private call(face: Face, run: (given: object) => Cleanup): () => void {
    const stop = new AbortController();
    face.users++;
    const cleanup = run(
      Object.freeze({
        model: face.model,
        ...(this.manner.signal ? { signal: stop.signal } : {}),
        experimental: Object.freeze({ invoke: () => Promise.reject(new Error("nobody answers")) }),
      }),
    );
    return () => {
      stop.abort();
      cleanup?.();
      if (face.users-- === 1) face.over = true;
    };
  }

  /** One face of the model, with the members of the contract alone. */
  private face(): Face {
    const face: Face = { over: false, users: 0, model: {} };
    const alive = (what: string) => {
      if (face.over) this.refuse(`${what} once it is over`);
    };
    const known = {
      get: (key: string) => {
        alive("get");
        if (key !== "snapshot") this.refuse(`get("${key}")`);
        return this.snapshot;
      },
      set: () => this.refuse("set: this widget changes nothing"),
      save_changes: () => this.refuse("save_changes: this widget changes nothing"),
      on: (event: string, callback: Heard) => {
        alive("on");
        if (!EVENTS.test(event)) this.refuse(`on("${event}")`);
        this.heard.push([face, event, callback]);
      },
      off: (event: string, callback: Heard) => {
        const at = this.heard.findIndex(([by, name, one]) => by === face && name === event && one === callback);
        if (at < 0) this.refuse(`off("${event}") of what was never on`);
        else this.heard.splice(at, 1);
      },
      send: (content: unknown, callbacks?: unknown, buffers?: unknown) => {
        alive("send");
        if (callbacks !== undefined || buffers !== undefined) this.refuse("send with callbacks or buffers");
        if ((content as { op: string }).op !== "hello") this.sent.push(structuredClone(content));
      },
    };
    face.model = new Proxy(Object.freeze(known), {
      get: (of, key) => {
        if (key in of) return of[key as keyof typeof of];
        // Not part of every host: whoever asks has to live with nothing.
        if (key !== "widget_manager") this.refuse(`model.${String(key)}`);
        return undefined;
      },
    });
    return face;
  }

  private refuse(what: string): void {
    this.refused.push(what);
  }
}

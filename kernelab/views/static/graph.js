for (const all of document.querySelectorAll(".klg-all:not(.klg-on)")) {
  all.classList.add("klg-on");
  const steps = JSON.parse(all.dataset.steps);
  const view = all.closest(".kl") || all;
  const turn = steps.filter((step) => step.length === 3).length;
  const slider = all.querySelector("input");
  const says = all.querySelector(".klg-says");
  const every = (selector) => [...all.querySelectorAll(selector)];
  const nodes = new Map();
  for (const box of every("[data-node]")) {
    nodes.set(box.dataset.node, [...(nodes.get(box.dataset.node) || []), box]);
  }
  const boxes = (number) => nodes.get(String(number)) || [];
  const around = (box) => {
    const found = [];
    for (let at = box.closest("details"); at; at = at.parentElement.closest("details")) found.push(at);
    return found.filter((details) => all.contains(details));
  };
  let opened = [];
  let at = steps.length;
  const mark = (number, name) => {
    for (const box of boxes(number)) {
      box.classList.add(name);
      for (const details of around(box)) {
        for (const folded of every(`[data-group="${details.dataset.inside}"]`)) folded.classList.add(name);
      }
    }
  };
  const bring = (box, room) => {
    const inner = box.getBoundingClientRect(), outer = room.getBoundingClientRect();
    const zoom = outer.width / room.offsetWidth || 1;
    if (inner.top < outer.top || inner.bottom > outer.bottom) {
      room.scrollTop += (inner.top - outer.top - outer.height / 2) / zoom;
    }
    if (inner.left < outer.left || inner.right > outer.right) {
      room.scrollLeft += (inner.left - outer.left - outer.width / 2) / zoom;
    }
  };
  const unfold = (number) => {
    const box = boxes(number).find((one) => !one.classList.contains("port"));
    const wanted = box ? around(box) : [];
    for (const details of opened) if (!wanted.includes(details)) details.open = false;
    opened = wanted.filter((details) => opened.includes(details) || !details.open);
    for (const details of wanted) details.open = true;
    if (box) bring(box, box.closest(".klg-room"));
  };
  const go = (to) => {
    at = Math.max(0, Math.min(steps.length, to));
    slider.value = at;
    for (const one of every(".now,.from")) one.classList.remove("now", "from");
    for (const line of view.querySelectorAll(".klg-lit")) line.classList.remove("klg-lit");
    const bars = new Map();
    const known = new Set();
    for (const step of steps.slice(0, at)) {
      if (step.length === 3) known.add(String(step[0]));
      else bars.set(String(step[0]), step[4]);
    }
    for (const [number, found] of nodes) {
      const seed = at > turn && steps.some((s, k) => k < at && s.length > 3 && String(s[3]) === number);
      for (const box of found) {
        box.querySelector(".v").classList.toggle("off", !known.has(number));
        const bar = box.querySelector(".b");
        if (bar.dataset.end === undefined) bar.dataset.end = bar.textContent;
        bar.textContent = bars.get(number) || (seed ? bar.dataset.end : "");
      }
    }
    const step = steps[at - 1];
    const phase = at > turn ? `backwards ${at - turn} of ${steps.length - turn}` : `forwards ${at} of ${turn}`;
    all.querySelector(".klg-bar span").textContent = phase;
    says.textContent = step ? step[2] : "nothing has run yet";
    if (!step) return;
    if (step.length > 3) {
      mark(step[3], "from");
      for (const path of every(`[data-flows~="${step[0]}-${step[3]}"]`)) path.classList.add("now");
    }
    mark(step[0], "now");
    const lines = step[1] ? [...view.querySelectorAll(`pre .${CSS.escape(step[1])}`)] : [];
    for (const line of lines) {
      line.classList.add("klg-lit");
      bring(line, line.closest("pre"));
    }
    unfold(step[0]);
  };
  slider.max = steps.length;
  slider.value = at;
  slider.addEventListener("input", () => go(Number(slider.value)));
  slider.addEventListener("keydown", (event) => {
    if (/^(Arrow|Home|End|Page)/.test(event.key)) event.stopPropagation();  // JupyterLab would go to another cell
  });
  all.querySelector(".klg-bar").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const ends = { first: 0, back: at - 1, next: at + 1, turn: turn, last: steps.length };
    go(ends[button.dataset.go]);
  });
  all.addEventListener("click", (event) => {
    const group = event.target.closest("[data-group]");
    if (!group) return;
    const details = every("details").find((one) => one.dataset.inside === group.dataset.group);
    for (const one of [details, ...around(details.parentElement)]) one.open = true;
    details.scrollIntoView({ block: "nearest" });
    opened = [];
  });
  all.querySelector(".klg-bar span").textContent = `the end: ${steps.length} steps`;
}

"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const { boxes, wires, frames } = JSON.parse(find("data").textContent);
  const STAGES = ["Forward", "Sort", "Backward"];
  const SVG = "http://www.w3.org/2000/svg";
  const ARROW = 13; // the arrowhead's length at the end of each wire's path
  const EMPTY = "·";
  const ZERO = "0.0";
  const TOOLS = 48; // the height kept free for the buttons below the graph
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  const starts = [0, 1, 2].map((stage) => frames.findIndex((frame) => frame.stage === stage));
  const lengths = [0, 1, 2].map((stage) => frames.filter((frame) => frame.stage === stage).length);
  const graphs = [find("graph-LR"), find("graph-TB")];
  const drawn = graphs.map((graph) => {
    const nodes = indexed(graph, ".cr-node", "node");
    return {
      nodes,
      edges: indexed(graph, ".cr-edge", "edge"),
      data: nodes.map((node) => node.querySelector(".cr-data")),
      grad: nodes.map((node) => node.querySelector(".cr-grad")),
    };
  });

  let now = 0;
  let chosen = null; // the box whose history is shown
  let timer = null;
  let shown = 0; // which of the two drawings
  let zoom = 1;

  function indexed(graph, selector, key) {
    const list = [];
    for (const element of graph.querySelectorAll(selector)) list[element.dataset[key]] = element;
    return list;
  }

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // --- what is true at a frame: changes replayed from the start ---------------------------------

  function stateAt(index) {
    const state = { data: new Map(), how: new Map(), stack: [], sorted: [], grads: new Map(), sums: new Map() };
    for (let i = 0; i <= index; i++) {
      const frame = frames[i];
      if (frame.data !== undefined) state.data.set(frame.box, frame.data);
      if (frame.how !== undefined) state.how.set(frame.box, frame.how);
      if (frame.popped) state.stack.pop();
      for (const entry of frame.pushed || []) state.stack.push(entry);
      if (frame.sorted) state.sorted.push(frame.box);
      if (frame.total === undefined) continue;
      state.grads.set(frame.child, frame.total);
      if (!frame.added) continue;
      if (!state.sums.has(frame.child)) state.sums.set(frame.child, []);
      state.sums.get(frame.child).push(frame.amount);
    }
    return state;
  }

  function render() {
    const frame = frames[now];
    const { stage } = frame;
    const state = stateAt(now);
    document.body.dataset.stage = stage;
    renderCard(frame, stage);
    renderGraph(frame, stage, state);
    renderState(frame, stage, state);
    renderHistory();
    const position = `${now + 1} / ${frames.length}`;
    find("counter").textContent = position;
    const scrub = find("scrub");
    scrub.value = now;
    scrub.style.setProperty("--at", `${(100 * now) / (frames.length - 1 || 1)}%`);
    scrub.setAttribute("aria-valuetext", `${STAGES[stage]}, step ${position}: ${frame.headline}`);
    for (const button of document.querySelectorAll(".stages button")) {
      const own = Number(button.dataset.stage);
      const done = Math.min(Math.max(now - starts[own] + 1, 0), lengths[own]);
      button.style.setProperty("--progress", done / lengths[own]);
      if (own === stage) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
    find("back").disabled = find("first").disabled = now === 0;
    find("next").disabled = find("last").disabled = now === frames.length - 1;
  }

  function renderCard(frame, stage) {
    const inStage = now - starts[stage] + 1;
    find("stage-name").textContent = `${STAGES[stage]}, step ${inStage} of ${lengths[stage]}`;
    find("headline").textContent = frame.headline;
    find("exact").textContent = frame.exact || "";
    find("lines").replaceChildren(
      ...(frame.lines || []).map((line) => {
        const maths = /^=|[=∂]/.test(line) && stage !== 1;
        return element("p", `${maths ? "maths" : ""}${/ is now /.test(line) ? " now" : ""}`, line);
      })
    );
  }

  function renderGraph(frame, stage, state) {
    const reached = new Set([...state.stack.map(([box]) => box), ...state.sorted, frame.box]);
    const place = new Map(state.sorted.map((box, i) => [box, i + 1]));
    for (const { nodes, edges, data, grad } of drawn) {
      nodes.forEach((node, box) => {
        const ahead = (stage === 0 && !state.data.has(box)) || (stage === 1 && !reached.has(box));
        node.classList.toggle("is-ahead", ahead);
        node.classList.toggle("is-current", box === frame.box);
        node.classList.toggle("is-touched", (frame.about || []).includes(box) && box !== frame.box);
        node.classList.toggle("is-chosen", box === chosen);
        node.classList.toggle("has-landed", stage === 2 && box === frame.child);
        if (data[box]) number(data[box], state.data.get(box));
        number(grad[box], stage < 2 ? undefined : state.grads.get(box) || ZERO);
        badge(node, stage === 1 ? place.get(box) : undefined);
      });
      edges.forEach((edge, wire) => {
        edge.classList.toggle("is-lit", (frame.wires || []).includes(wire));
        edge.classList.toggle("is-ahead", stage === 0 && !state.data.has(wires[wire][1]));
      });
    }
  }

  function number(slot, text) {
    slot.textContent = text === undefined ? EMPTY : text;
    slot.classList.toggle("is-empty", text === undefined);
  }

  // The place in the sorted list, at a corner of the box.
  function badge(node, place) {
    let mark = node.querySelector(".badge");
    if (!place) {
      if (mark) mark.remove();
      return;
    }
    if (!mark) {
      const body = node.querySelector(".cr-body");
      mark = label("badge", 18, 16);
      mark.setAttribute("transform", `translate(${body.x.baseVal.value} ${body.y.baseVal.value})`);
      node.append(mark);
    }
    mark.querySelector("text").textContent = place;
  }

  function label(className, width, height) {
    const group = document.createElementNS(SVG, "g");
    group.setAttribute("class", className);
    const rect = document.createElementNS(SVG, "rect");
    for (const [name, value] of [["x", -width / 2], ["y", -height / 2], ["width", width], ["height", height], ["rx", height / 2]])
      rect.setAttribute(name, value);
    const text = document.createElementNS(SVG, "text");
    text.setAttribute("y", 4);
    group.append(rect, text);
    return group;
  }

  function renderState(frame, stage, state) {
    find("values").hidden = stage !== 0;
    find("sorting").hidden = stage !== 1;
    find("gradients").hidden = stage !== 2;
    if (stage === 0) {
      const rows = [...state.data].map(([box, text]) => [box, state.how.get(box) || "", text]);
      fill("value-rows", rows, frame.box, "data");
    }
    if (stage === 1) {
      const pushed = (frame.pushed || []).length;
      const stack = state.stack.map(([box, index], i) => {
        const isNew = i >= state.stack.length - pushed;
        return element("li", isNew ? "is-new" : "", `(${boxes[box].name}, ${index})`);
      });
      find("stack").replaceChildren(...stack.reverse());
      const sorted = state.sorted.map((box, i) => {
        const item = element("li", frame.sorted && box === frame.box ? "is-new" : "");
        item.value = i + 1;
        item.append(element("span", "", boxes[box].name));
        return item;
      });
      find("sorted").replaceChildren(...sorted);
    }
    if (stage === 2) {
      const rows = [...state.sorted].reverse().map((box) => {
        const sums = state.sums.get(box) || [];
        const last = sums.length > 4 ? ["…", ...sums.slice(-3)] : sums;
        const how = sums.length > 1 ? last.join(" + ").replaceAll("+ -", "− ") : "";
        return [box, how, state.grads.get(box) || ZERO];
      });
      fill("gradient-rows", rows, frame.child, "grad", (box) => !state.grads.has(box));
    }
  }

  function fill(id, entries, current, kind, waiting = () => false) {
    const rows = entries.map(([box, how, text]) => {
      const names = [];
      if (box === current) names.push("is-current");
      if (waiting(box)) names.push("is-waiting");
      const row = element("tr", names.join(" "));
      row.dataset[kind] = box;
      const name = element("td", "", boxes[box].name);
      if (how) name.append(element("span", "how", how));
      row.append(name, element("td", "", text));
      return row;
    });
    find(id).replaceChildren(...rows);
    if (chosen === null) keepInView(find(id).querySelector(".is-current"));
  }

  function keepInView(row) {
    if (!row) return;
    const panel = find("below");
    const [inner, outer] = [row.getBoundingClientRect(), panel.getBoundingClientRect()];
    if (inner.bottom > outer.bottom) panel.scrollTop += inner.bottom - outer.bottom + 24;
    if (inner.top < outer.top) panel.scrollTop -= outer.top - inner.top + 24;
  }

  // --- one box's history ------------------------------------------------------------------------

  function choose(box) {
    chosen = box === chosen ? null : box;
    document.body.toggleAttribute("data-history", chosen !== null);
    render();
    find("below").scrollTop = 0;
    follow();
  }

  function renderHistory() {
    find("history").hidden = chosen === null;
    if (chosen === null) return;
    find("history-title").textContent = `History of ${boxes[chosen].name}`;
    const items = [];
    frames.forEach((frame, i) => {
      if (!(frame.about || []).includes(chosen)) return;
      const item = element("li", i > now ? "is-future" : "");
      item.dataset.stage = frame.stage;
      if (i === now) item.setAttribute("aria-current", "step");
      const button = element("button", "", inOneLine(frame));
      button.type = "button";
      button.addEventListener("click", () => go(i));
      item.append(button);
      items.push(item);
    });
    find("history-list").replaceChildren(...items);
  }

  // "c = a * b = 2 × 3 = 6", "pop (c, 0): a is new, push (a,0) to explore it"
  function inOneLine(frame) {
    const lines = frame.lines || [];
    if (frame.stage === 1) return `${frame.headline}: ${lines[lines.length - 1]}`;
    const equations = lines.filter((line) => line.startsWith("="));
    if (equations.length) return [frame.headline, ...equations].join(" ");
    return lines.length ? `${frame.headline}: ${lines[0]}` : frame.headline;
  }

  // --- moving through the film ------------------------------------------------------------------

  function go(index, animate = false) {
    const next = Math.min(Math.max(index, 0), frames.length - 1);
    const moved = next !== now;
    now = next;
    render();
    follow();
    if (moved && animate && !calm.matches) animateToken(frames[now]);
    if (now === frames.length - 1) pause();
  }

  function step(by) {
    pause();
    go(now + by, by === 1);
  }

  function play() {
    if (now === frames.length - 1) go(0);
    document.body.dataset.playing = "";
    find("play").setAttribute("aria-label", "Pause");
    tick();
  }

  function tick() {
    timer = window.setTimeout(() => {
      go(now + 1, true);
      if (timer !== null) tick();
    }, Number(find("speed").value));
  }

  function pause() {
    window.clearTimeout(timer);
    timer = null;
    delete document.body.dataset.playing;
    find("play").setAttribute("aria-label", "Play");
  }

  const toggle = () => (timer === null ? play() : pause());

  // A number that travels along its wire: values forwards, gradients back.
  function animateToken(frame) {
    for (const old of document.querySelectorAll(".token")) old.remove();
    if (frame.stage === 1) return;
    const backward = frame.stage === 2;
    const text = frame.amount && `+= ${frame.amount}`;
    for (const wire of frame.wires || []) {
      const path = drawn[shown].edges[wire];
      const words = backward ? text : frames.find((f) => f.data && f.box === wires[wire][0]).data;
      if (!words) continue;
      const token = label("token", words.length * 7.4 + 14, 20);
      token.querySelector("text").textContent = words;
      graphs[shown].append(token);
      const length = path.getTotalLength() - ARROW;
      const duration = Math.min(650, Number(find("speed").value) * 0.6);
      const begin = performance.now();
      const move = (time) => {
        const t = Math.min(1, Math.max(0, (time - begin) / duration));
        const eased = 1 - (1 - t) ** 3;
        const point = path.getPointAtLength(length * (backward ? 1 - eased : eased));
        token.setAttribute("transform", `translate(${point.x} ${point.y})`);
        if (t < 1 && token.isConnected) requestAnimationFrame(move);
        else token.remove();
      };
      move(begin);
    }
  }

  // --- the view ---------------------------------------------------------------------------------

  const natural = (graph) => [graph.viewBox.baseVal.width, graph.viewBox.baseVal.height];

  function fitting(graph) {
    const area = find("scroll");
    const [width, height] = natural(graph);
    return Math.min(area.clientWidth / width, (area.clientHeight - TOOLS) / height);
  }

  function setZoom(value) {
    zoom = Math.min(2.5, Math.max(0.1, value));
    const [width] = natural(graphs[shown]);
    graphs[shown].style.width = `${width * zoom}px`;
    follow(true);
  }

  function show(which) {
    shown = which;
    graphs.forEach((graph, i) => (graph.style.display = i === which ? "block" : "none"));
    const smallest = which === 0 ? 0.65 : 0.8; // that can still be read
    setZoom(Math.min(1.5, Math.max(smallest, fitting(graphs[which]))));
  }

  // From left to right as in the lecture, unless that would be too small to read.
  const betterWay = () => (fitting(graphs[0]) >= Math.min(0.65, fitting(graphs[1])) ? 0 : 1);

  // Keep the box in focus, and whoever it hands something to, in view.
  function follow(atOnce = false) {
    const area = find("scroll");
    const frame = frames[now];
    const node = drawn[shown].nodes[frame.child === undefined ? frame.box : frame.child];
    if (!node || !area.clientWidth) return;
    const [inner, outer] = [node.getBoundingClientRect(), area.getBoundingClientRect()];
    const margin = 24;
    const inside =
      inner.left >= outer.left + margin && inner.right <= outer.right - margin &&
      inner.top >= outer.top + margin && inner.bottom <= outer.bottom - TOOLS;
    if (inside) return;
    area.scrollTo({
      left: area.scrollLeft + (inner.left + inner.right) / 2 - (outer.left + outer.right) / 2,
      top: area.scrollTop + (inner.top + inner.bottom) / 2 - (outer.top + outer.bottom) / 2,
      behavior: atOnce || calm.matches ? "instant" : "smooth",
    });
  }

  // --- controls ---------------------------------------------------------------------------------

  const onClick = (id, action) => find(id).addEventListener("click", action);
  onClick("first", () => { pause(); go(0); });
  onClick("back", () => step(-1));
  onClick("play", toggle);
  onClick("next", () => step(1));
  onClick("last", () => { pause(); go(frames.length - 1); });
  onClick("turn", () => show(1 - shown));
  onClick("smaller", () => setZoom(zoom / 1.25));
  onClick("larger", () => setZoom(zoom * 1.25));
  onClick("fit", () => setZoom(fitting(graphs[shown])));
  onClick("history-close", () => choose(chosen));
  onClick("theme", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  find("scrub").addEventListener("input", (event) => { pause(); go(Number(event.target.value)); });
  for (const button of document.querySelectorAll(".stages button"))
    button.addEventListener("click", () => { pause(); go(starts[Number(button.dataset.stage)]); });

  for (const { nodes } of drawn) {
    nodes.forEach((node, box) => {
      node.setAttribute("tabindex", "0");
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", `${boxes[box].name}: show its history`);
      node.addEventListener("click", () => choose(box));
      node.addEventListener("keydown", (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault();
        choose(box);
      });
    });
  }

  const keys = {
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    Home: () => { pause(); go(0); },
    End: () => { pause(); go(frames.length - 1); },
    " ": toggle,
    Escape: () => { if (chosen !== null) choose(chosen); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target;
    if (target.matches("select") || (target.matches("button") && event.key === " ")) return;
    if (target.id === "scrub" && event.key !== " ") return; // a slider has these keys already
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone's address bar came or went
    width = window.innerWidth;
    show(betterWay());
  });

  const scrub = find("scrub");
  scrub.max = frames.length - 1;
  scrub.style.setProperty("--to-sort", `${(100 * starts[1]) / (frames.length - 1 || 1)}%`);
  scrub.style.setProperty("--to-backward", `${(100 * starts[2]) / (frames.length - 1 || 1)}%`);
  show(betterWay());
  render();
})();

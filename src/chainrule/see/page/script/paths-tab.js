// The tab that shows paths, and lights them up in the graph.

const paths = { node: null, hovered: null, lit: new Set(), boxes: new Set() };

function lightUp(b) {
  paths.lit.clear();
  paths.boxes.clear();
  if (b === null || b === undefined) return;
  // Whatever uses the box, or uses what uses it, lies on a way to the result.
  paths.boxes.add(b);
  for (const next of view.order) for (const n of view.into[next]) if (paths.boxes.has(view.wires[n].source)) {
    paths.boxes.add(next);
    paths.lit.add(n);
  }
}

function renderPaths() {
  const node = paths.hovered ?? paths.node ?? inputs[0];
  if (node === undefined) return;
  const b = view.boxOf.get(node);
  lightUp(b);
  const [root, name] = [graph.names[graph.root], graph.names[node]];
  find("paths-node").value = node;
  const { count, listed } = findPaths(graph, numbers.slope, node, MOST_PATHS);
  const whole = `∂${quoted(root)}/∂${quoted(name)}`;
  const many = count > 1e15 ? count.toExponential(2) : count.toLocaleString("en");
  find("paths-said").textContent =
    node === graph.root ? `${root} is the result itself: its gradient is 1.`
      : count === 1 ? `One path leads from ${name} to ${root}. Multiply the local gradients along it.`
        : `${many} paths lead from ${name} to ${root}. Multiply the local gradients along each path, then add the products.`;
  const products = listed.map(({ edges }) => edges.map((e) => partial(graph, graph.userOf[e], graph.child[e])));
  const brief = products.length === count && products.flat().length <= 7;
  const some = brief ? products.map((factors) => factors.join(" · ")).join("  +  ") : "the sum over all paths of ∂ · ∂ · …";
  find("paths-formula").textContent = `${whole} = ${node === graph.root ? "1" : some}`;
  find("paths-rows").replaceChildren(
    ...listed.map(({ edges, product: value }) => {
      const upwards = [...edges].reverse(); // as one walks from the node to the result
      const way = [node, ...upwards.map((e) => graph.userOf[e])].map((i) => graph.names[i]);
      const row = tableRow("", elided(way).join(" → "), short(value));
      row.firstChild.append(element("span", "how", elided(upwards.map((e) => bracketedFactor(numbers.slope[e]))).join(" × ") || "1.0"));
      return row;
    })
  );
  const rest = count > listed.length ? [tableRow("is-soft", `${(count - listed.length).toLocaleString("en")} more`, "…")] : [];
  find("paths-sum").replaceChildren(...rest, tableRow("is-grad", `sum = ${attribute(name)}`, short(numbers.grad[node])));
}

const elided = (items) => (items.length > 9 ? [...items.slice(0, 4), "…", ...items.slice(-4)] : items);
const bracketedFactor = (x) => (x < 0 ? `(${short(x)})` : short(x));

function chooseForPaths(i) {
  paths.node = i;
  paths.hovered = null;
  render();
  remember();
}

const namable = Array.from({ length: graph.count }, (_, i) => i).filter((i) => kindOf(graph, i) !== "constant");
const offered = namable.length > 600 ? inputs.slice(0, 600) : namable; // any other node can be pointed at
options(find("paths-node"), offered.map((i) => [i, graph.names[i]]));
find("paths-node").addEventListener("change", (event) => chooseForPaths(Number(event.target.value)));

addTab("paths", "Paths", {
  showsAll: true,
  open: () => (paths.node ??= chosen !== null && !view.boxes[chosen].isGroup ? view.boxes[chosen].nodes[0] : inputs[0]),
  update: renderPaths,
  focus: () => view.boxOf.get(paths.node) ?? shownNow.frame.box,
  choose: (b) => !view.boxes[b].isGroup && chooseForPaths(view.boxes[b].nodes[0]),
  point: (b) => {
    if (view.boxes[b].isGroup || paths.hovered === view.boxes[b].nodes[0]) return;
    paths.hovered = view.boxes[b].nodes[0];
    renderPaths();
    renderGraph(shownNow);
  },
  overlay: {
    box: (b) => (paths.boxes.has(b) ? ["is-on-path"] : ["is-off-path"]),
    wire: (n) => (paths.lit.has(n) ? ["is-path"] : ["is-off-path"]),
    labels: () => {
      if (paths.lit.size > 60) return;
      for (const n of paths.lit) {
        const { edges } = view.wires[n];
        if (edges.length === 1) drawing.labelWire(n, `× ${short(numbers.slope[edges[0]])}`, "slope");
      }
    },
  },
});
find("scroll").addEventListener("pointerleave", () => {
  if (paths.hovered === null) return;
  paths.hovered = null;
  if (tab.id === "paths") render();
});

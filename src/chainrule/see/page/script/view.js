// A view: what one picture shows. Boxes, each one node or many, and wires; places come with the data.
// The whole graph is a view, and so is the inside of a collapsed box.

// `given` has the places, its own or those of the view it is like; and boxes = [[title, runs of
// nodes, the view inside or null, is outside]], or the nodes inside and outside as runs, or nothing
// where every node of the graph is a box.
function makeView(graph, views, number) {
  const given = views[number].like === undefined ? views[number] : { ...views[views[number].like], ...views[number] };
  const plain = !given.boxes && !given.inside;
  const single = (i, outside) => ({ nodes: [i], title: graph.names[i], outside });
  const boxes = plain
    ? graph.names.map((_, i) => single(i, false))
    : given.boxes
      ? given.boxes.map(([title, runs, inside, outside]) => ({ title, nodes: fromRuns(runs), inside, outside: outside === 1 }))
      : [...fromRuns(given.outside).map((i) => single(i, true)), ...fromRuns(given.inside).map((i) => single(i, false))];
  const boxOf = new Map();
  boxes.forEach((box, b) => {
    box.number = b;
    box.isGroup = box.nodes.length > 1;
    for (const i of box.nodes) boxOf.set(i, b);
  });
  const view = { number, plain, boxes, wires: [], into: [], given, boxOf };
  for (const box of boxes) view.into.push(box.outside ? [] : wiresInto(graph, view, box));
  view.uses = boxes.map(() => 0);
  for (const wire of view.wires) view.uses[wire.source]++;
  const movable = new Set(graph.inputs);
  for (const box of boxes) describe(graph, box, movable);
  view.bends = new Map(given.bends.map(([source, target, ...bends]) => [`${source} ${target}`, bends]));
  view.roots = boxes.filter((box) => view.uses[box.number] === 0).map((box) => box.number);
  sortView(view);
  return view;
}

function wiresInto(graph, view, box) {
  const { start, child } = graph;
  const edgesFrom = new Map(); // by box, in a collapsed box; by operand, in a node
  const made = [];
  for (const i of box.nodes)
    for (let e = start[i]; e < start[i + 1]; e++) {
      const source = view.boxOf.get(child[e]);
      if (source === box.number) continue;
      if (box.isGroup && edgesFrom.has(source)) edgesFrom.get(source).edges.push(e);
      else {
        const wire = { source, target: box.number, operand: box.isGroup ? 0 : e - start[i], lane: 0, lanes: 1, edges: [e] };
        edgesFrom.set(source, wire);
        made.push(wire);
      }
    }
  if (box.isGroup) made.sort((a, b) => a.source - b.source);
  else
    for (const wire of made) {
      const twins = made.filter((other) => other.source === wire.source);
      [wire.lane, wire.lanes] = [twins.indexOf(wire), twins.length];
    }
  const numbers = made.map((_, k) => view.wires.length + k);
  view.wires.push(...made);
  return numbers;
}

function describe(graph, box, movable) {
  const last = box.nodes[box.nodes.length - 1];
  box.kind = last === graph.root ? "output" : "value";
  box.symbol = "";
  if (!box.isGroup) {
    box.kind = kindOf(graph, last);
    box.symbol = box.outside ? "" : symbolOf(graph, last);
  } else if (box.nodes.every((i) => isLeaf(graph, i))) {
    const kinds = new Set(box.nodes.map((i) => kindOf(graph, i)));
    box.kind = kinds.size === 1 ? [...kinds][0] : "input";
  }
  if (box.outside) box.kind = "outside";
  // A number written in the formula is its own title, and is not written twice.
  box.showsData = box.isGroup || box.outside || !isNumber(graph, last) || movable.has(last);
  box.results = box.nodes;
  if (box.isGroup && !box.outside) {
    const used = new Set();
    for (const i of box.nodes) for (let e = graph.start[i]; e < graph.start[i + 1]; e++) used.add(graph.child[e]);
    box.results = box.nodes.filter((i) => !used.has(i));
  }
}

const isCollapsed = (view) => view.boxes.some((box) => box.isGroup);

// The sort by an explicit stack, pop by pop, and the order it ends in. A stack shares its lower part
// with the stack before it, so that every state is kept cheaply.
function sortView(view) {
  const childrenOf = (box) => view.into[box].map((n) => view.wires[n].source);
  const visited = new Set(view.roots);
  let stack = null;
  const pushed = view.roots.map((box) => [box, 0]);
  for (const entry of pushed) stack = { entry, below: stack };
  const pops = [{ popped: null, action: "start", child: null, pushed, done: 0, stack }];
  const order = [];
  while (stack) {
    const { entry: popped } = stack;
    stack = stack.below;
    const [box, i] = popped;
    const children = childrenOf(box);
    if (i === children.length) {
      order.push(box);
      pops.push({ popped, action: "done", child: null, pushed: [], done: order.length, stack });
      continue;
    }
    const child = children[i];
    const again = [box, i + 1];
    stack = { entry: again, below: stack };
    const isNew = !visited.has(child);
    if (isNew) {
      visited.add(child);
      stack = { entry: [child, 0], below: stack };
    }
    pops.push({ popped, action: isNew ? "explore" : "skip", child, pushed: isNew ? [again, [child, 0]] : [again], done: order.length, stack });
  }
  [view.pops, view.order] = [pops, order];
}

function bottomFirst(stack) {
  const entries = [];
  for (let rest = stack; rest; rest = rest.below) entries.push(rest.entry);
  return entries.reverse();
}

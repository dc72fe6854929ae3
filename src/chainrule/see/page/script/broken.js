// Engines that are broken on purpose, as switches of one engine. The stories come with the data;
// what each does is here, and a test compares with chainrule.lessons.

const MOST_WORK = 200000; // steps: two of the mistakes take every path, one after the other

// The gradients of one graph by an engine with one thing wrong; null where it would not finish.
function brokenGradients(graph, slope, name) {
  const { count, start, child, root } = graph;
  const leaf = new Float64Array(count); // inputs keep their gradient from one graph to the next
  const fresh = () => new Float64Array(count);
  const has = (copy, i) => (isLeaf(graph, i) ? leaf : copy)[i];
  const put = (copy, i, x) => ((isLeaf(graph, i) ? leaf : copy)[i] = x);

  function pass(copy, i) {
    const grad = has(copy, i);
    let edges = Array.from({ length: start[i + 1] - start[i] }, (_, k) => start[i] + k);
    if (name === "set_of_children") edges = [...new Map(edges.map((e) => [child[e], e])).values()];
    for (const e of edges) {
      const skip = name !== "zero_times_inf" && (slope[e] === 0 || grad === 0);
      const amount = skip ? 0 : slope[e] * grad;
      put(copy, child[e], name === "overwrite" ? amount : has(copy, child[e]) + amount);
    }
  }
  const inReverse = (copy) => { for (let i = count - 1; i >= 0; i--) pass(copy, i); };
  const seed = (copy) => put(copy, root, 1);
  const result = (copy) => Float64Array.from({ length: count }, (_, i) => has(copy, i));

  const copy = fresh();
  switch (name) {
    case "no_visited": {
      const order = everyVisit(graph);
      if (!order) return null;
      seed(copy);
      for (let k = order.length - 1; k >= 0; k--) pass(copy, order[k]);
      return result(copy);
    }
    case "recursion": {
      seed(copy);
      const stack = [root];
      for (let work = 0; stack.length; work++) {
        if (work > MOST_WORK) return null;
        const i = stack.pop();
        pass(copy, i);
        for (let e = start[i + 1] - 1; e >= start[i]; e--) stack.push(child[e]);
      }
      return result(copy);
    }
    case "breadth_first": {
      seed(copy);
      const [queue, visited] = [[root], new Set([root])];
      for (let k = 0; k < queue.length; k++) {
        pass(copy, queue[k]);
        for (let e = start[queue[k]]; e < start[queue[k] + 1]; e++)
          if (!visited.has(child[e])) visited.add(child[e]), queue.push(child[e]);
      }
      return result(copy);
    }
    case "while_sorting":
    case "not_reversed": {
      seed(copy);
      for (let i = 0; i < count; i++) pass(copy, i);
      return result(copy);
    }
    case "not_reset": {
      const second = fresh();
      for (const one of [copy, second]) seed(one), inReverse(one);
      return result(second);
    }
    case "second_backward": {
      for (let call = 0; call < 2; call++) seed(copy), inReverse(copy);
      return result(copy);
    }
    case "stale_buffers": {
      seed(copy);
      inReverse(copy);
      leaf.fill(0);
      const second = fresh();
      seed(second);
      if (!isLeaf(graph, root)) inReverse(second);
      inReverse(copy); // the last step's graph is still in the list
      return result(second);
    }
    case "no_seed":
      inReverse(copy);
      return result(copy);
    default: // overwrite, set_of_children, zero_times_inf, and none at all
      seed(copy);
      inReverse(copy);
      return result(copy);
  }
}

// The sort that never asks whether it was here before.
function everyVisit({ start, child, root }) {
  const order = [];
  const stack = [[root, start[root]]];
  while (stack.length) {
    if (order.length + stack.length > MOST_WORK) return null;
    const top = stack[stack.length - 1];
    const [i, e] = top;
    if (e === start[i + 1]) {
      order.push(i);
      stack.pop();
    } else {
      top[1]++;
      stack.push([child[e], start[child[e]]]);
    }
  }
  return order;
}

// More than rounding.
function differs(a, b) {
  if (Object.is(a, b) || a === b) return false;
  return !(Math.abs(a - b) <= Math.max(1e-9 * Math.max(Math.abs(a), Math.abs(b)), 1e-12));
}

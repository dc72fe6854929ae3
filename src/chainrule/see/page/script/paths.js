// Paths: every way from a node to the result, and what each contributes to its gradient.

const MOST_PATHS = 12; // listed; they are counted all the same

// The paths from the result down to a node: how many, and those with the largest products.
function findPaths(graph, slope, node, most) {
  const { count, start, child } = graph;
  const ways = new Float64Array(count);
  const best = new Float64Array(count).fill(-1); // the largest |product| from here down to the node
  [ways[node], best[node]] = [1, 1];
  for (let i = node + 1; i < count; i++)
    for (let e = start[i]; e < start[i + 1]; e++) {
      if (!ways[child[e]]) continue;
      ways[i] += ways[child[e]];
      best[i] = Math.max(best[i], sizeOfProduct(slope[e], best[child[e]]));
    }
  const listed = [];
  // Best first: what a beginning can still become is its product times the best from there on.
  let open = ways[count - 1] ? [{ at: count - 1, edges: [], product: 1, bound: best[count - 1] }] : [];
  while (open.length && listed.length < most) {
    let top = 0;
    for (let k = 1; k < open.length; k++) if (open[k].bound > open[top].bound) top = k;
    const [{ at, edges, product: so }] = open.splice(top, 1);
    if (at === node) {
      listed.push({ edges, product: so });
      continue;
    }
    for (let e = start[at]; e < start[at + 1]; e++) {
      if (!ways[child[e]]) continue;
      const made = slope[e] && so ? so * slope[e] : 0;
      open.push({ at: child[e], edges: [...edges, e], product: made, bound: sizeOfProduct(made, best[child[e]]) });
    }
    if (open.length > 4000) open = open.sort((a, b) => b.bound - a.bound).slice(0, 2000);
  }
  return { count: ways[count - 1], listed };
}

function sizeOfProduct(a, size) {
  const p = a && size ? Math.abs(a) * size : 0;
  return Number.isNaN(p) ? Infinity : p;
}

const partial = (graph, above, below) => `∂${quoted(graph.names[above])}/∂${quoted(graph.names[below])}`;

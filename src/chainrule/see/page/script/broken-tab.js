// The tab that runs a broken engine beside the right one, on this very graph.

const RATE = 0.01; // of the update whose sign is wrong
const broken = { name: given.mistakes[0].name, wrong: new Map() };

// What the inputs become when they are moved against the gradient, or along it.
function afterUpdate(sign) {
  const next = new Map(moved);
  for (const i of inputs) if (!graph.frozen[i]) next.set(i, numbers.data[i] + sign * RATE * numbers.grad[i]);
  return { next, result: resultAt(graph, next) };
}

// Rows of [name, right, broken], and the nodes that are wrong.
function compareEngines(name, passes) {
  if (name === "wrong_sign") {
    const [right, wrong] = [afterUpdate(-1), afterUpdate(1)];
    const rows = inputs.filter((i) => !graph.frozen[i]).map((i) => [i, graph.names[i], right.next.get(i), wrong.next.get(i)]);
    rows.unshift([graph.root, `${graph.names[graph.root]} after the update`, right.result, wrong.result]);
    return rows;
  }
  const got = brokenGradients(graph, numbers.slope, name);
  if (!got) return null;
  const rows = [];
  for (let i = graph.count - 1; i >= 0; i--)
    if (kindOf(graph, i) !== "constant") rows.push([i, attribute(graph.names[i]), (isLeaf(graph, i) ? passes : 1) * numbers.grad[i], got[i]]);
  return rows;
}

function renderBroken() {
  const mistake = given.mistakes.find((one) => one.name === broken.name);
  const rows = compareEngines(mistake.name, mistake.passes);
  find("broken-why").textContent = mistake.why;
  find("broken-code").replaceChildren(
    ...mistake.code.split("\n").flatMap((line, k, lines) => {
      const isWrong = /# wrong/.test(line) || (k > 0 && /# wrong/.test(lines[k - 1]));
      return [element("span", isWrong ? "is-wrong" : "", line), document.createTextNode("\n")];
    })
  );
  broken.wrong.clear();
  const verdict = find("broken-verdict");
  if (!rows) {
    find("broken-rows").replaceChildren();
    verdict.className = "verdict is-wrong";
    verdict.textContent = "This engine would not finish: it follows every path on its own.";
    return;
  }
  for (const [i, , right, got] of rows) if (differs(right, got)) broken.wrong.set(i, got);
  const first = rows.findIndex(([i]) => broken.wrong.has(i));
  const from = Math.max(0, Math.min(first, rows.length - MOST_ROWS));
  find("broken-rows").replaceChildren(
    ...rows.slice(from, from + MOST_ROWS).map(([i, name, right, got], k) => {
      const isWrong = broken.wrong.has(i);
      return tableRow(`${isWrong ? "is-wrong" : ""} ${from + k === first ? "is-first" : ""}`.trim(), name, short(right), short(got));
    })
  );
  verdict.className = `verdict ${first < 0 ? "is-right" : "is-wrong"}`;
  verdict.textContent = verdictOf(mistake, rows, first);
}

function verdictOf(mistake, rows, first) {
  if (first < 0) return "It does not show on this graph: every number is right. That is why it is so hard to find.";
  if (mistake.name === "wrong_sign") {
    const before = numbers.data[graph.root];
    return `${graph.names[graph.root]} was ${short(before)}. The right update makes it ${short(rows[0][2])}, the broken one ${short(rows[0][3])}.`;
  }
  const [, name, right, got] = rows[first];
  const { size } = broken.wrong;
  const how = `${counted(size, "number")} of ${rows.length} ${size === 1 ? "is" : "are"} wrong`;
  return `The first wrong number is ${name}: ${short(got)} where ${short(right)} is right. ${how}.`;
}

options(find("broken-kind"), given.mistakes.map(({ name, title }) => [name, title]));
find("broken-kind").addEventListener("change", (event) => {
  broken.name = event.target.value;
  render();
  remember();
});

addTab("broken", "Mistakes", {
  showsAll: true,
  update: renderBroken,
  overlay: {
    box: (b) => (view.boxes[b].nodes.some((i) => broken.wrong.has(i)) ? ["is-wrong"] : []),
    badge: (b) => {
      const [i] = view.boxes[b].nodes;
      if (view.boxes[b].isGroup || !broken.wrong.has(i) || broken.name === "wrong_sign") return "";
      return short(broken.wrong.get(i));
    },
  },
});

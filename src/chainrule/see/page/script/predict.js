// Predict: every += of stage 2 is hidden until the learner has typed it.

const predict = { at: 0, open: true, tries: 0, answers: [], before: null };

// Each += between two single nodes, with its place among the events.
function questions() {
  const isAsked = ({ kind, box, child }) => kind === "add" && !view.boxes[box].isGroup && !view.boxes[child].isGroup;
  return film.events.map((event, k) => [event, k]).filter(([event]) => isAsked(event));
}

function factorsOf(event) {
  const wire = view.wires[event.wire];
  const [target, source] = [view.boxes[wire.target], view.boxes[wire.source]];
  const [i, e] = [target.nodes[0], wire.edges[0]];
  const [formula, why] = slopeInWords(graph, numbers.data, i, wire.operand);
  return {
    target, source, i, e, formula, why, operand: wire.operand,
    slope: numbers.slope[e], grad: numbers.grad[i], amount: event.amount, total: event.total,
    local: `∂${quoted(target.title)}/∂${quoted(source.title)}`,
  };
}

// Whether a typed number is the right one, to as many digits as were typed.
function isRight(typed, text, wanted) {
  if (typed === wanted) return true;
  const decimals = (/\.(\d*)/.exec(text) || ["", ""])[1].length;
  const near = Math.abs(typed - wanted);
  if (near <= 0.002 * Math.abs(wanted)) return true;
  return !/e/i.test(text) && near <= 0.5 * 10 ** -decimals * 1.0001 && near <= 0.05 * Math.abs(wanted);
}

// Which factor was wrong.
function diagnosis(typed, text, q) {
  const is = (x) => isRight(typed, text, x);
  const grad = attribute(q.target.title);
  const formula = q.formula && q.formula !== compact(q.slope) ? `${q.formula} = ` : "";
  const localIs = `${q.local} is ${formula}${short(q.slope)}${q.why ? `, because ${q.why}` : ""}`;
  if (is(q.total)) return `That is what ${attribute(q.source.title)} is afterwards. Asked is what is added to it now.`;
  if (is(-q.amount)) return "The size is right, the sign is not.";
  if (is(q.slope) && q.grad !== 1) return `That is the local gradient alone. Multiply it by ${grad}, which is ${short(q.grad)}.`;
  if (is(q.grad)) return `That is ${grad} alone: the local gradient is missing. What is ${q.local}?`;
  for (let e = graph.start[q.i]; e < graph.start[q.i + 1]; e++)
    if (e !== q.e && is(numbers.slope[e] * q.grad)) return `The local gradient is wrong: that is the one of ${graph.names[graph.child[e]]}. ${localIs}.`;
  if (is(q.slope * numbers.data[q.i])) return `The local gradient is right. The other factor is ${grad} = ${short(q.grad)}, not the data of ${q.target.title}.`;
  if (is(numbers.data[q.source.nodes[0]] * q.grad)) return `The local gradient is wrong: that is the data of ${q.source.title}. ${localIs}.`;
  if (q.grad !== 0 && predict.tries > 1) {
    const implied = short(typed / q.grad);
    return `The local gradient is wrong: your answer would need ${implied}. ${localIs}, and ${grad} is ${short(q.grad)}.`;
  }
  return `Not that. One factor is ${grad} = ${short(q.grad)}; the other is the local gradient ${q.local}${q.formula ? ` = ${q.formula}` : ""}.`;
}

function renderPredict() {
  const all = questions();
  const done = predict.at >= all.length;
  const right = predict.answers.filter((answer) => answer.first).length;
  find("predict-form").hidden = done || !predict.open;
  find("predict-show").hidden = done || !predict.open;
  find("predict-next").hidden = done || predict.open;
  find("predict-again").hidden = !done || !all.length;
  find("predict-answers").replaceChildren(
    ...predict.answers.map(({ text, first }) => element("li", first ? "is-right" : "is-wrong", text))
  );
  if (done) {
    find("predict-count").textContent = "Predict";
    find("predict-headline").textContent = all.length ? `${right} of ${all.length} right at the first try` : "There is nothing to predict here";
    const said =
      !all.length ? "No single gradient is passed on in this picture. Open a box first."
        : right === all.length ? "You have computed the whole backward pass."
          : "Those in red below are worth a second look.";
    find("predict-lines").replaceChildren(element("p", "", said));
    find("predict-feedback").textContent = "";
    return;
  }
  predict.before = gradsAt(film, now - film.starts[BACKWARD] - 1);
  const q = factorsOf(all[predict.at][0]);
  find("predict-count").textContent = `Question ${predict.at + 1} of ${all.length}, ${right} right so far`;
  find("predict-headline").textContent = `${attribute(q.source.title)} += ${q.local} × ${attribute(q.target.title)}`;
  const [made, plain] = formulaOf(graph, numbers.data, q.i);
  find("predict-lines").replaceChildren(
    element("p", "maths", `${q.target.title} = ${made} = ${plain}`),
    element("p", "maths", `${attribute(q.target.title)} = ${short(q.grad)}`)
  );
  find("predict-label").textContent = `What is added to ${attribute(q.source.title)}?`;
}

function settle(first) {
  const q = factorsOf(questions()[predict.at][0]);
  predict.open = false;
  predict.answers.push({ first, text: `${attribute(q.source.title)} += ${product(q.slope, q.grad, q.amount)}` });
  renderPredict();
  render();
  find("predict-next").focus();
}

function ask(at) {
  Object.assign(predict, { at, open: true, tries: 0 });
  find("predict-answer").value = "";
  find("predict-feedback").textContent = "";
  find("predict-feedback").className = "feedback";
  const all = questions();
  now = film.starts[BACKWARD] + (at < all.length ? all[at][1] : film.events.length - 1);
  render();
  follow();
  if (at < all.length) find("predict-answer").focus({ preventScroll: true });
}

find("predict-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = find("predict-answer").value.trim();
  const typed = parsed(text);
  const said = find("predict-feedback");
  if (typed === null) {
    said.className = "feedback";
    said.textContent = text ? `“${text}” is not a number` : "Type a number, such as 2 or -0.5";
    return;
  }
  predict.tries++;
  const q = factorsOf(questions()[predict.at][0]);
  if (isRight(typed, text, q.amount)) {
    said.className = "feedback is-right";
    const now = q.total === q.amount ? "" : ` ${attribute(q.source.title)} is now ${short(q.total)}.`;
    said.textContent = `Right: ${product(q.slope, q.grad, q.amount)}.${now}`;
    settle(predict.tries === 1);
    return;
  }
  said.className = "feedback is-wrong";
  said.textContent = diagnosis(typed, text, q);
  find("predict-answer").select();
});
find("predict-show").addEventListener("click", () => {
  const q = factorsOf(questions()[predict.at][0]);
  find("predict-feedback").className = "feedback";
  find("predict-feedback").textContent = `${q.local}${q.formula ? ` = ${q.formula}` : ""} = ${short(q.slope)}, so ${product(q.slope, q.grad, q.amount)}.`;
  settle(false);
});
find("predict-next").addEventListener("click", () => ask(predict.at + 1));
find("predict-again").addEventListener("click", () => {
  predict.answers = [];
  ask(0);
});

addTab("predict", "Predict", {
  holdsFilm: true,
  open: () => {
    pause();
    predict.answers = [];
    ask(0);
  },
  close: () => (now = film.starts[BACKWARD]),
  update: renderPredict,
  overlay: {
    // While a question is open, its number and what follows from it are not known yet.
    grad: (b) => {
      const event = film.events[now - film.starts[BACKWARD]];
      if (!predict.open || !event || event.kind !== "add") return undefined;
      const { before } = predict;
      if (b !== event.child) return before.text(b);
      return before.has(b) ? `${before.text(b)} + ?` : "?";
    },
  },
});

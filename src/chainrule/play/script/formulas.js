// The first tab: an expression, drawn as it is typed.

const EXAMPLES = [
  ["relu(a*b + d)", "a=2 b=-3 d=10", "one of everything"],
  ["c = a*b; L = c + a", "a=2 b=3", "a is used twice"],
  ["tanh(x1*w1 + x2*w2 + b)", "x1=2 x2=0 w1=-3 w2=1 b=6.88", "a neuron"],
  ["(w*x + b - y)**2", "w=0.5 x=2 b=0.1 y=3", "a loss"],
  ["p = exp(a)/(exp(a) + exp(b)); -log(p)", "a=1 b=2", "softmax and its loss"],
  ["1/(1 + exp(-x))", "x=0.5", "the sigmoid, by hand"],
  ["where(x > 0, x**2, 0.1*x)", "x=1.5", "a choice"],
];

const formulas = { frames: makeFrames(find("formula-frames"), "The backward pass of the expression"), asked: 0, values: "" };

options(find("formula-example"), [["", "choose one"], ...EXAMPLES.map(([text, , about], k) => [k, `${about}: ${text}`])]);
find("formula-example").addEventListener("change", ({ target }) => {
  if (target.value === "") return;
  const [text, values] = EXAMPLES[Number(target.value)];
  find("formula").value = text;
  find("formula-values").value = formulas.values = values;
  target.value = "";
  drawFormula("");
});

// Inputs that are moved in the page are seen in the field, and count as typed there.
function takeOverMoved() {
  if (document.activeElement === find("formula-values")) return;
  const movedInputs = new Map();
  for (const part of formulas.frames.address().slice(1).split("&")) {
    const [key, number] = part.split("=");
    if (key.startsWith("in.")) movedInputs.set(decodeURIComponent(key.slice(3)), number);
  }
  const parts = formulas.values.split(/[\s,]+/).filter(Boolean).map((part) => {
    const name = part.split("=")[0];
    return movedInputs.has(name) ? `${name}=${movedInputs.get(name)}` : part;
  });
  find("formula-values").value = parts.join(" ");
}
window.setInterval(takeOverMoved, 400);

function keptAddress() {
  const kept = formulas.frames.address().slice(1).split("&").filter((part) => part && !part.startsWith("in."));
  return `#${kept.join("&")}`;
}

function pointAt(field, place, error, column) {
  field.setAttribute("aria-invalid", Boolean(error));
  place.replaceChildren();
  if (!error) return;
  const caret = element("span", "", `${" ".repeat(column)}▲`);
  caret.setAttribute("aria-hidden", "true");
  caret.style.marginLeft = `${-field.scrollLeft}px`;
  place.append(caret, element("b", "", error));
}

async function drawFormula(hash) {
  const [text, values] = [find("formula").value, find("formula-values").value];
  const mine = ++formulas.asked;
  const answer = await post("expression", { text, values });
  if (mine !== formulas.asked) return; // something else has been typed since
  const where = answer.error ? answer.where || "text" : null;
  pointAt(find("formula"), find("formula-place"), where === "text" && answer.error, answer.column || 0);
  pointAt(find("formula-values"), find("values-place"), where === "values" && answer.error, answer.column || 0);
  find("formula-frames").classList.toggle("is-stale", Boolean(answer.error));
  if (answer.error) return;
  formulas.values = answer.values;
  remember();
  formulas.frames.show(answer.graph, hash ?? keptAddress());
}

const typedFormula = later(() => {
  takeOverMoved();
  drawFormula();
});
find("formula").addEventListener("input", typedFormula);
find("formula-values").addEventListener("input", ({ target }) => (formulas.values = target.value));
find("formula-values").addEventListener("input", later(() => drawFormula()));
find("formula-values").addEventListener("change", () => drawFormula());
find("formula-form").addEventListener("submit", (event) => event.preventDefault());

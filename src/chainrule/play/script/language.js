// The third tab: a GPT that learns to write, what it expects, and where it looks.

const language = { started: null, state: null, seed: 42 };

options(find("language-speed"), [[1, "1 step a second"], [20, "20 a second"], [200, "200 a second"], [1000, "1,000 a second"], [1000000, "as fast as it goes"]], 200);
options(find("language-width"), [8, 16, 32].map((n) => [n, `${n} numbers`]), 16);
options(find("language-heads"), [1, 2, 4].map((n) => [n, String(n)]), 4);
options(find("language-layers"), [1, 2].map((n) => [n, String(n)]), 1);
options(find("language-block"), [8, 16, 32].map((n) => [n, `${n} characters`]), 16);
options(find("language-steps"), [500, 1000, 3000, 10000, 30000].map((n) => [n, n.toLocaleString("en")]), 3000);

const numberOf = (id) => Number(find(`language-${id}`).value);

async function startLanguage() {
  getReady("language", language);
  const answer = await ask("language", "start", {
    source: find("language-source").value, text: find("language-text").value,
    width: numberOf("width"), heads: numberOf("heads"), layers: numberOf("layers"), block: numberOf("block"),
    steps: numberOf("steps"), rate: 0.01, seed: language.seed,
  });
  if (tell("language", answer)) return;
  language.started = answer;
  setDisabled("language", false);
  language.state = null;
  find("prefix").maxLength = numberOf("block") - 1;
  find("language-about").textContent = `${answer.documents.toLocaleString("en")} documents, such as ${answer.examples.join(", ").slice(0, 80)}. ${answer.vocabulary.length - 1} different characters, ${answer.parameters.toLocaleString("en")} parameters.`;
  options(find("token-next"), answer.vocabulary.map((name, k) => [k, tokenName(name)]));
  await ask("language", "speed", { speed: numberOf("speed") });
  await watchPrefix();
}

const tokenName = (name) => (name === "·" ? "· (the end)" : name === " " ? "␣ (a space)" : name);
const shownToken = (name) => (name === " " ? "␣" : name);

stream.listeners.set("language", (state) => {
  if (state.ended) return tell("language", { error: `${state.ended}. Start over.` });
  if (!language.started || state.version !== language.started.version) return;
  language.state = state;
  renderLanguage();
});

function renderLanguage() {
  const { state } = language;
  renderRun("language", state);
  const { means } = state.curve;
  find("language-loss").textContent = means.length ? means[means.length - 1].toFixed(3) : "·";
  if (state.step >= state.steps) find("language-run").textContent = "Finished";
  find("language-run").disabled = find("language-step").disabled = state.step >= state.steps;
  drawLosses(find("language-curve"), state.curve, state.step, state.validation);
  find("language-curve-said").textContent = means.length
    ? `Line: what it loses per character while it learns; a guess among all ${language.started.vocabulary.length} would lose ${Math.log(language.started.vocabulary.length).toFixed(2)}. Dots: on documents it does not learn from.`
    : "Press Train: each step reads one document and moves every weight a little.";
  renderSamples(state);
  renderReading(state.reading);
}

function renderSamples({ sampled }) {
  const rows = [...sampled].reverse().map(({ step, texts }) => {
    const row = element("tr");
    const head = element("th", "", step.toLocaleString("en"));
    head.scope = "row";
    const cell = element("td");
    cell.append(...texts.map(([text, isNew]) => element("span", isNew ? "" : "is-known", text || "(nothing)")));
    row.append(head, cell);
    return row;
  });
  find("samples").replaceChildren(...rows);
}

function renderReading({ prefix, tokens, chances, heads }) {
  const { vocabulary } = language.started;
  const order = chances.map((_, k) => k).sort((a, b) => chances[b] - chances[a]).slice(0, 12);
  find("chances-said").textContent = prefix ? `After “${prefix}” it expects:` : "At the very beginning it expects:";
  find("chances").replaceChildren(
    ...order.map((k) => {
      const item = element("li");
      const button = element("button");
      button.type = "button";
      button.setAttribute("aria-label", `${tokenName(vocabulary[k])}, ${(100 * chances[k]).toFixed(1)} percent: choose it`);
      const bar = element("i");
      bar.style.setProperty("--share", chances[k] / chances[order[0]]);
      button.append(element("b", "", shownToken(vocabulary[k])), bar, element("span", "", `${(100 * chances[k]).toFixed(1)}%`));
      button.addEventListener("click", () => chooseNext(k));
      item.append(button);
      return item;
    })
  );
  if (find("token-next").dataset.prefix !== prefix) {
    find("token-next").dataset.prefix = prefix;
    find("token-next").value = order[0];
  }
  find("heads").replaceChildren(...heads.map((head) => headPicture(head, tokens)));
}

// A character that was chosen is typed; the end cannot be.
function chooseNext(k) {
  find("token-next").value = k;
  const name = language.started.vocabulary[k];
  if (name === "·" || find("prefix").value.length >= find("prefix").maxLength) return;
  find("prefix").value += name;
  watchPrefix();
}

function headPicture({ name, rows }, tokens) {
  const size = Math.max(12, Math.min(22, Math.floor(250 / (tokens.length + 1))));
  const side = (tokens.length + 1) * size;
  const svg = svgElement("svg", { width: side, height: side, role: "img", "aria-label": `${name}: ${tokens.map((token, i) => `${token} looks most at ${tokens[rows[i].indexOf(Math.max(...rows[i]))]}`).join(", ")}` });
  tokens.forEach((token, i) => {
    for (const [x, y] of [[(i + 1.5) * size, size / 2], [size / 2, (i + 1.5) * size]]) {
      const text = svgElement("text", { x, y });
      text.textContent = shownToken(token);
      svg.append(text);
    }
    rows[i].forEach((share, j) => {
      const cell = svgElement("rect", { x: (j + 1) * size, y: (i + 1) * size, width: size - 1, height: size - 1, rx: 2 });
      cell.style.fill = signed(-1, share);
      const said = svgElement("title");
      said.textContent = `${token} gives ${tokens[j]} ${Math.round(100 * share)}% of its attention`;
      cell.append(said);
      svg.append(cell);
    });
  });
  const figure = element("figure");
  figure.append(element("figcaption", "", name.replace(/\d+/g, (n) => Number(n) + 1)), svg);
  return figure;
}

async function watchPrefix() {
  const answer = await ask("language", "prefix", { prefix: find("prefix").value });
  pointAt(find("prefix"), find("prefix-place"), answer.error, find("prefix").value.length - 1);
}
find("prefix").addEventListener("input", later(watchPrefix, 60));

find("token-why").addEventListener("click", async () => {
  await ask("language", "pause");
  find("token-why").disabled = true;
  const answer = await ask("language", "token", { prefix: find("prefix").value, next: Number(find("token-next").value) });
  find("token-why").disabled = false;
  if (tell("language", answer)) return;
  const read = answer.read === "·" ? "the beginning" : `“${answer.read}”`;
  openGraph(
    `Reading ${read}, expecting “${tokenName(answer.next)}”`,
    `The model gives “${answer.next}” the probability ${short(answer.probability)}, so the loss is -log of that: ${short(answer.loss)}. ` +
      `These are all ${answer.nodes.toLocaleString("en")} numbers of this one token, from its embedding on; what was read before it enters as keys and values. ` +
      "Press → to step, and open a box to look inside."
  );
  graphFrames.show(answer.graph, `#${asCompact()}`);
});

labControls("language", language, startLanguage);
for (const id of ["width", "heads", "layers", "block", "steps"]) find(`language-${id}`).addEventListener("change", startLanguage);
find("language-source").addEventListener("change", ({ target }) => {
  find("language-text-part").hidden = target.value !== "text";
  if (target.value === "names" || find("language-text").value) startLanguage();
  else find("language-text").focus();
});
find("language-use").addEventListener("click", startLanguage);
readInto("language-file", "language-text", startLanguage);

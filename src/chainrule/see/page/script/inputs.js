// Sliders and number fields, one pair for every input.

const MOST_INPUTS = 40; // shown at once; the search field finds the others

const { inputs } = graph;

// A round number near x: 1, 2 or 5 times a power of ten.
function roundUp(x) {
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= x * 0.999);
}

// From where to where a slider goes: around the first value, and wide enough for the present one.
function spanOf(i) {
  const first = graph.data[i];
  const reach = roundUp(Math.max(1, Math.abs(first)) * 1.5);
  const center = Number.isFinite(first) ? first : 0;
  const x = numbers.data[i];
  const wide = Number.isFinite(x) ? Math.max(reach, roundUp(Math.abs(x - center) || 1)) : reach;
  return { low: center - wide, high: center + wide, step: wide / 100 };
}

const tidy = (x) => Number(x.toPrecision(10)) + 0;

const rowsOf = new Map();

function inputRow(i) {
  const row = element("li", "input");
  const name = graph.names[i];
  const label = element("label", "name", name);
  label.id = `input-name-${i}`;
  const slider = element("input");
  slider.type = "range";
  slider.id = `slider-${i}`;
  slider.setAttribute("aria-label", `${name}, slider`);
  const field = element("input", "number");
  field.id = `number-${i}`;
  field.inputMode = "text";
  field.spellcheck = false;
  field.autocomplete = "off";
  label.htmlFor = field.id;
  field.setAttribute("aria-label", `${name}, number`);
  const why = graph.frozen[i];
  if (why) {
    slider.disabled = field.disabled = true;
    row.title = why;
    row.append(label, slider, field, element("p", "why", `cannot be moved: ${why}`));
  } else row.append(label, slider, field);
  slider.addEventListener("input", () => {
    pause();
    const x = Number(slider.value);
    const first = graph.data[i];
    setInput(i, Math.abs(x - first) < spanOf(i).step / 2 ? first : tidy(x));
  });
  field.addEventListener("input", () => {
    const x = parsed(field.value);
    field.setAttribute("aria-invalid", x === null);
    if (x === null) return;
    pause();
    setInput(i, x);
  });
  field.addEventListener("change", () => {
    field.setAttribute("aria-invalid", "false");
    renderInputs(true);
  });
  rowsOf.set(i, { row, slider, field });
  return row;
}

function listInputs() {
  const wanted = find("inputs-find").value.trim().toLowerCase();
  const matching = inputs.filter((i) => graph.names[i].toLowerCase().includes(wanted));
  rowsOf.clear();
  find("input-rows").replaceChildren(...matching.slice(0, MOST_INPUTS).map(inputRow));
  if (matching.length > MOST_INPUTS) find("input-rows").append(element("li", "more", `and ${(matching.length - MOST_INPUTS).toLocaleString("en")} more: find one by its name`));
  renderInputs(true);
}

function renderInputs(rewrite = false) {
  for (const [i, { row, slider, field }] of rowsOf) {
    const x = numbers.data[i];
    const { low, high, step } = spanOf(i);
    [slider.min, slider.max, slider.step] = [low, high, step];
    slider.value = x;
    slider.style.setProperty("--at", `${(100 * (Number(slider.value) - low)) / (high - low)}%`);
    if (rewrite || document.activeElement !== field) field.value = compact(x);
    row.classList.toggle("is-moved", moved.has(i));
  }
  find("inputs-reset").disabled = moved.size === 0;
  const { trouble } = numbers;
  find("trouble").textContent = trouble < 0 ? "" : `${graph.names[trouble]}: ${troubleInWords(graph, numbers, trouble)}.`;
}

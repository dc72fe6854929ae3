// Weights: the inputs that form a matrix or a row, as a heat map of their data and gradients.

// w[3][5] and w[3,5] lie in w; b[3] in a row; layers.0.neurons.3.w[5] in layers.0.neurons.*.w.
function placeInMatrix(name) {
  const pair = /^(.*?)\[(\d+)(?:\]\[|, ?)(\d+)\]$/.exec(name);
  if (pair) return { stem: pair[1], row: Number(pair[2]), column: Number(pair[3]) };
  const starred = /^(.*\.)(\d+)(\.[^.[\]]+)\[(\d+)\]$/.exec(name);
  if (starred) return { stem: `${starred[1]}*${starred[3]}`, row: Number(starred[2]), column: Number(starred[4]) };
  const single = /^(.*?)\[(\d+)\]$/.exec(name);
  return single && { stem: single[1], row: 0, column: Number(single[2]) };
}

function findMatrices() {
  const found = new Map();
  for (const i of inputs) {
    const name = graph.names[i];
    const place = placeInMatrix(name);
    if (!place) continue;
    const { stem, row, column } = place;
    if (!found.has(stem)) found.set(stem, { stem, cells: [], rows: 0, columns: 0 });
    const matrix = found.get(stem);
    matrix.cells.push({ i, row, column });
    matrix.rows = Math.max(matrix.rows, row + 1);
    matrix.columns = Math.max(matrix.columns, column + 1);
  }
  return [...found.values()].filter(({ cells, rows, columns }) => cells.length > 1 && rows * columns <= 65536);
}

const matrices = findMatrices();
const heat = { which: 0, cell: null };

// Blue for negative, orange for positive, paper for zero.
function shade(x, most) {
  if (!Number.isFinite(x)) return "var(--wrong)";
  const share = most ? Math.sqrt(Math.abs(x) / most) : 0;
  return `color-mix(in oklab, var(${x < 0 ? "--forward" : "--backward"}) ${Math.round(share * 100)}%, var(--raised))`;
}

function heatMap(id, matrix, values) {
  const box = find(id);
  const most = matrix.cells.reduce((m, { i }) => Math.max(m, Number.isFinite(values[i]) ? Math.abs(values[i]) : 0), 0);
  const size = Math.max(5, Math.min(26, Math.floor(340 / matrix.columns)));
  const svg = svgElement("svg", { width: matrix.columns * size, height: matrix.rows * size, class: "cells" });
  for (const { i, row, column } of matrix.cells) {
    const cell = svgElement("rect", { x: column * size, y: row * size, width: size - 1, height: size - 1, rx: Math.min(3, size / 6), "data-cell": i });
    cell.style.fill = shade(values[i], most);
    if (i === heat.cell) cell.setAttribute("class", "is-chosen");
    cell.addEventListener("pointerenter", () => tellCell(i));
    cell.addEventListener("click", () => chooseCell(i));
    svg.append(cell);
  }
  box.replaceChildren(svg);
  box.setAttribute("aria-label", `${matrix.stem}, ${matrix.rows} by ${matrix.columns}, largest absolute value ${short(most)}`);
}

function tellCell(i) {
  find("weights-said").textContent = `${graph.names[i]}: data ${short(numbers.data[i])}, grad ${short(numbers.grad[i])}`;
}

function chooseCell(i) {
  heat.cell = i;
  const b = view.boxOf.get(i);
  if (b !== undefined) chosen = b;
  find("inputs-find").value = inputs.length > MOST_INPUTS ? graph.names[i] : "";
  listInputs();
  render();
  tellCell(i);
}

function renderWeights() {
  const matrix = matrices[heat.which];
  const { rows, columns, cells } = matrix;
  find("weights-said").textContent = `${rows > 1 ? `${rows} × ${columns}` : `${columns}`} numbers. Blue is negative, red positive; the stronger, the larger. Point at one.`;
  heatMap("weights-data", matrix, numbers.data);
  heatMap("weights-grad", matrix, numbers.grad);
  if (heat.cell !== null && cells.some(({ i }) => i === heat.cell)) tellCell(heat.cell);
}

if (matrices.length) {
  options(find("weights-which"), matrices.map(({ stem }, k) => [k, stem]));
  find("weights-which").addEventListener("change", (event) => {
    heat.which = Number(event.target.value);
    renderWeights();
  });
  addTab("weights", "Weights", { showsAll: true, update: renderWeights });
}

// Making and finding elements; text only ever becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

const coordinate = (x) => String(Math.round(x * 10) / 10);
const find = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function options(select, entries, value) {
  select.replaceChildren(
    ...entries.map(([key, text]) => {
      const option = element("option", "", text);
      option.value = key;
      return option;
    })
  );
  if (value !== undefined) select.value = value;
}

function tableRow(className, ...cells) {
  const row = element("tr", className);
  cells.forEach((text, k) => {
    const cell = element(k ? "td" : "th", "", text);
    if (!k) cell.scope = "row";
    row.append(cell);
  });
  return row;
}

function svgElement(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svgText(className, x, y, text, anchor) {
  const made = svgElement("text", { class: className, x: coordinate(x), y: coordinate(y), ...(anchor && { "text-anchor": anchor }) });
  made.textContent = text;
  return made;
}

const svgRect = (className, x, y, width, height, rx) =>
  svgElement("rect", { class: className, x: coordinate(x), y: coordinate(y), width: coordinate(width), height: coordinate(height), rx });

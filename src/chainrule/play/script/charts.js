// Small pictures: curves of losses, planes painted by a network, and their colours.

let palette = null;

// The theme's colours as numbers, for canvases.
function colours() {
  if (palette) return palette;
  const probe = element("i");
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  palette = { negative: read("--forward"), positive: read("--backward"), zero: read("--raised") };
  probe.remove();
  return palette;
}

// Blue for negative, red for positive, paper for zero.
const signed = (x, share) => `color-mix(in oklab, var(${x < 0 ? "--forward" : "--backward"}) ${Math.round(Math.min(1, share) * 100)}%, var(--raised))`;

function paint(canvas, { side, pixels }, strength = 1) {
  const { negative, positive, zero } = colours();
  const bytes = Uint8Array.from(atob(pixels), (c) => c.charCodeAt(0));
  if (canvas.width !== side) canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  const image = context.createImageData(side, side);
  for (let i = 0; i < bytes.length; i++) {
    const x = (bytes[i] - 128) / 127;
    const end = x < 0 ? negative : positive;
    const share = Math.min(1, Math.abs(x)) * strength;
    for (let k = 0; k < 3; k++) image.data[4 * i + k] = zero[k] + (end[k] - zero[k]) * share;
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

// The mean losses from the first step to the last; `dots` are further losses, by their step.
function drawLosses(svg, { every, means }, last, dots = []) {
  const { width, height } = svg.viewBox.baseVal;
  const [left, base] = [44, 22];
  const heights = [...means, ...dots.map(([, y]) => y)];
  const top = Math.max(1e-9, ...heights) * 1.05;
  const end = Math.max(1, last);
  const px = (step) => left + (step / end) * (width - left - 8);
  const py = (y) => 8 + (1 - y / top) * (height - base - 8);
  const line = means.map((y, k) => `${k ? "L" : "M"}${coordinate(px((k + 1) * every))},${coordinate(py(y))}`).join("");
  const parts = [
    svgElement("path", { class: "axis", d: `M${left},8V${height - base}H${width - 8}` }),
    svgText("tick", left - 6, py(0), "0", "end"),
    svgText("tick", left, height - 6, "0", "start"),
    svgText("tick", width - 8, height - 6, end.toLocaleString("en"), "end"),
    svgElement("path", { class: "curve", d: line }),
    ...dots.map(([step, y]) => svgElement("circle", { class: "held", cx: coordinate(px(step)), cy: coordinate(py(y)), r: 3 })),
  ];
  if (heights.length) parts.push(svgText("tick", left - 6, 14, short(Number(top.toPrecision(2))), "end"));
  svg.replaceChildren(...parts);
  const now = means.length ? `, now ${short(means[means.length - 1])}` : "";
  svg.setAttribute("aria-label", `The loss over ${end.toLocaleString("en")} steps${now}`);
}

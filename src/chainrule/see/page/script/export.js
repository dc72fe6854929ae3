// A step as SVG or PNG, the film as a GIF. Pixels are painted from the drawing's own elements, with
// the colours that the browser computed for them, so nothing is loaded and no image is decoded.

const STYLED = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
  "font-family", "font-size", "font-weight", "text-anchor",
];
const MOST_GIF_FRAMES = 400;

// The picture to export: the graph with a caption below it, at its natural size.
function captionLines() {
  const { headline, lines } = shownNow.frame;
  return [headline, ...lines.slice(0, 4)];
}

function* shapes(root) {
  for (const child of root.children) {
    const style = window.getComputedStyle(child);
    if (style.display === "none") continue;
    if (child.tagName === "g") {
      const match = /translate\(([-\d.]+)[ ,]+([-\d.]+)\)/.exec(child.getAttribute("transform") || "");
      const [x, y] = match ? [Number(match[1]), Number(match[2])] : [0, 0];
      for (const inner of shapes(child)) yield { ...inner, x: inner.x + x, y: inner.y + y, opacity: inner.opacity * Number(style.opacity) };
    } else yield { element: child, style, x: 0, y: 0, opacity: Number(style.opacity) };
  }
}

// Any CSS colour as the canvas understands it, oklab included.
const colours = new Map();
function rgba(colour) {
  if (!colours.has(colour)) {
    const spot = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    spot.fillStyle = colour;
    spot.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = spot.getImageData(0, 0, 1, 1).data;
    colours.set(colour, `rgba(${r}, ${g}, ${b}, ${Math.round((a / 255) * 1000) / 1000})`);
  }
  return colours.get(colour);
}

function outline(element) {
  const value = (name) => Number(element.getAttribute(name) || 0);
  const path = new Path2D();
  if (element.tagName === "rect") {
    const radius = Math.min(value("rx"), value("width") / 2, value("height") / 2);
    path.roundRect(value("x"), value("y"), value("width"), value("height"), radius);
  } else if (element.tagName === "line") path.moveTo(value("x1"), value("y1")), path.lineTo(value("x2"), value("y2"));
  else if (element.tagName === "circle") path.arc(value("cx"), value("cy"), value("r"), 0, 2 * Math.PI);
  else return new Path2D(element.getAttribute("d") || "");
  return path;
}

const CAPTION = 22; // pixels a line

function paint(canvas, scale) {
  const lines = captionLines();
  const [width, height] = natural();
  const below = (lines.length + 1) * CAPTION;
  if (!canvas.width || !canvas.fixed) [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil((height + below) * scale)];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.setTransform(1, 0, 0, 1, 0, 0);
  const body = window.getComputedStyle(document.body);
  context.fillStyle = window.getComputedStyle(find("scroll").parentElement).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  for (const { element, style, x, y, opacity } of shapes(drawing.svg)) {
    context.setTransform(scale, 0, 0, scale, x * scale, y * scale);
    context.globalAlpha = opacity;
    if (element.tagName === "text") {
      context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
      context.textAlign = { middle: "center", end: "right" }[style.textAnchor] || "left";
      context.fillStyle = style.fill;
      context.fillText(element.textContent, Number(element.getAttribute("x") || 0), Number(element.getAttribute("y") || 0));
      continue;
    }
    const path = outline(element);
    if (style.fill !== "none") context.fillStyle = style.fill, context.fill(path);
    if (style.stroke !== "none") {
      context.strokeStyle = style.stroke;
      context.lineWidth = parseFloat(style.strokeWidth);
      context.lineCap = style.strokeLinecap;
      context.lineJoin = style.strokeLinejoin;
      context.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[, ]+/).map(parseFloat));
      context.stroke(path);
    }
  }
  context.globalAlpha = 1;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.textAlign = "left";
  context.fillStyle = body.color;
  lines.forEach((line, k) => {
    context.font = `${k ? 400 : 600} 15px ${window.getComputedStyle(find("headline")).fontFamily}`;
    context.fillText(line, LAYOUT.margin, height + (k + 0.6) * CAPTION, width - 2 * LAYOUT.margin);
  });
  return canvas;
}

// The step as SVG text that stands alone: every element carries its colours.
function stepAsSvg() {
  const [width, height] = natural();
  const lines = captionLines();
  const full = height + (lines.length + 1) * CAPTION;
  const made = svgElement("svg", { xmlns: SVG, width: coordinate(width), height: coordinate(full), viewBox: `0 0 ${coordinate(width)} ${coordinate(full)}` });
  const body = window.getComputedStyle(document.body);
  made.append(svgElement("rect", { width: "100%", height: "100%", fill: rgba(window.getComputedStyle(find("scroll").parentElement).backgroundColor) }));
  for (const { element, style, x, y, opacity } of shapes(drawing.svg)) {
    const copy = element.cloneNode(true);
    for (const name of ["class", "data-edge", "style"]) copy.removeAttribute(name);
    for (const property of STYLED) {
      const value = style.getPropertyValue(property);
      if (value && value !== "none" && value !== "normal") copy.setAttribute(property, property === "fill" || property === "stroke" ? rgba(value) : value);
      else if (value === "none" && property === "fill") copy.setAttribute("fill", "none");
    }
    copy.setAttribute("opacity", opacity);
    if (x || y) copy.setAttribute("transform", `translate(${coordinate(x)} ${coordinate(y)})`);
    made.append(copy);
  }
  const family = window.getComputedStyle(find("headline")).fontFamily;
  lines.forEach((line, k) => {
    const text = svgText("", LAYOUT.margin, height + (k + 0.6) * CAPTION, line);
    const style = { fill: rgba(body.color), "font-size": "15px", "font-weight": k ? 400 : 600, "font-family": family };
    for (const [name, value] of Object.entries(style)) text.setAttribute(name, value);
    made.append(text);
  });
  return new XMLSerializer().serializeToString(made);
}

function save(blob, suffix) {
  const link = element("a");
  link.download = `${document.title.replace(/[^\w-]+/g, "-").slice(0, 60)}-${now + 1}.${suffix}`;
  link.href = URL.createObjectURL(blob);
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

const said = (text) => (find("share-said").textContent = text);

// Everything must be drawn for a moment, not only what the window shows.
function withWholeDrawing(action) {
  const { whole } = drawing;
  if (whole) return action();
  said("This picture is too large to save. Open a box, or collapse the graph with explore(v, limit=200).");
  return null;
}

find("save-svg").addEventListener("click", () => withWholeDrawing(() => {
  save(new Blob([stepAsSvg()], { type: "image/svg+xml" }), "svg");
  said("Saved this step as SVG.");
}));

find("save-png").addEventListener("click", () => withWholeDrawing(() => {
  paint(element("canvas"), 2).toBlob((blob) => save(blob, "png"), "image/png");
  said("Saved this step as PNG.");
}));

find("save-gif").addEventListener("click", () => withWholeDrawing(async () => {
  const [width] = natural();
  const scale = Math.min(1.25, 1000 / width);
  const count = Math.min(film.length, MOST_GIF_FRAMES);
  const [here, button] = [now, find("save-gif")];
  button.disabled = true;
  pause();
  const most = Math.max(...Array.from({ length: count }, (_, at) => 1 + Math.min(4, frameAt(film, at).lines.length)));
  const canvas = element("canvas");
  [canvas.width, canvas.height, canvas.fixed] = [Math.ceil(width * scale), Math.ceil((natural()[1] + (most + 1) * CAPTION) * scale), true];
  const gif = new Gif(canvas.width, canvas.height);
  document.body.dataset.filming = "";
  for (let at = 0; at < count; at++) {
    now = at;
    render();
    paint(canvas, scale);
    gif.add(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, at === count - 1 ? 300 : Number(find("speed").value) / 10);
    said(`Painting step ${at + 1} of ${count} …`);
    await new Promise((resolve) => window.setTimeout(resolve));
  }
  delete document.body.dataset.filming;
  now = here;
  render();
  button.disabled = false;
  save(new Blob([gif.finish()], { type: "image/gif" }), "gif");
  said(count < film.length ? `Saved the first ${count} of ${film.length} steps.` : `Saved a film of ${count} steps.`);
}));

find("share-copy").addEventListener("click", async () => {
  const link = find("share-link");
  link.select();
  try {
    await navigator.clipboard.writeText(link.value);
    said("Copied.");
  } catch {
    said("Press Ctrl+C to copy the link that is selected.");
  }
});

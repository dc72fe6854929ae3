// The drawing: one SVG element that holds what can be seen of a layout, and nothing else. Small
// pictures are drawn whole. Of large ones, the boxes in the window are drawn; from far away, when
// no text could be read, all boxes are one shape and all wires another.

const DRAWN_WHOLE = 400; // boxes
const FAR = 0.3; // below this scale, large pictures are shapes only

class Drawing {
  constructor(svg, onBox) {
    this.svg = svg;
    this.onBox = onBox; // called with each box's element when it is made
    this.edges = svg.appendChild(svgElement("g", { class: "cr-edges" }));
    this.boxes = svg.appendChild(svgElement("g", { class: "cr-boxes" }));
    this.labels = svg.appendChild(svgElement("g", { class: "cr-labels" }));
    this.nodes = new Map(); // the elements there are, by box and by wire
    this.wires = new Map();
  }

  show(layout) {
    this.layout = layout;
    this.whole = layout.view.boxes.length <= DRAWN_WHOLE;
    this.clear();
    this.extents = this.whole ? null : layout.view.wires.map((_, n) => extentOf(layout, n));
    this.svg.setAttribute("viewBox", `0 0 ${coordinate(layout.width)} ${coordinate(layout.height)}`);
    if (!this.whole) return;
    layout.view.wires.forEach((_, n) => this.addWire(n));
    layout.view.boxes.forEach((_, b) => this.addBox(b));
  }

  clear() {
    for (const group of [this.edges, this.boxes, this.labels]) group.replaceChildren();
    this.nodes.clear();
    this.wires.clear();
    this.isFar = null;
  }

  // Draw what lies in a window of the picture, and forget the rest. `always` are boxes in focus.
  look([left, top, right, bottom], scale, always) {
    if (this.whole) return;
    const far = scale < FAR;
    if (far !== this.isFar) {
      this.clear();
      this.isFar = far;
      if (far) this.addShapes();
    }
    const { places, view } = this.layout;
    const inView = (x0, y0, x1, y1) => x1 >= left && x0 <= right && y1 >= top && y0 <= bottom;
    const kept = new Set(always);
    if (!far)
      places.forEach((place, b) => {
        const op = this.layout.sideways ? place.start - place.opStart : 0;
        const above = this.layout.sideways ? 0 : place.start - place.opStart;
        if (inView(place.x - op, place.y - above, place.x + place.width, place.y + place.height)) kept.add(b);
      });
    const wires = new Set();
    if (!far) this.extents.forEach((extent, n) => inView(...extent) && wires.add(n));
    else for (const b of always) for (const n of view.into[b]) wires.add(n);
    for (const [b, node] of this.nodes) if (!kept.has(b)) this.nodes.delete(b), node.element.remove();
    for (const [n, wire] of this.wires) if (!wires.has(n)) this.wires.delete(n), wire.element.remove();
    for (const n of wires) if (!this.wires.has(n)) this.addWire(n);
    for (const b of kept) if (!this.nodes.has(b)) this.addBox(b);
  }

  addShapes() {
    const { places, view } = this.layout;
    const boxes = places.map(({ x, y, width, height }) => `M${coordinate(x)},${coordinate(y)}h${coordinate(width)}v${coordinate(height)}h${coordinate(-width)}z`);
    this.edges.append(svgElement("path", { class: "cr-edge cr-far", d: view.wires.map((_, n) => wayOf(this.layout, n, false)).join("") }));
    this.boxes.append(svgElement("path", { class: "cr-shapes", d: boxes.join("") }));
  }

  addWire(n) {
    const wire = this.layout.view.wires[n];
    const count = wire.edges.length;
    const bundle = count > 1 ? ` cr-bundle${Math.min(3, String(count).length)}` : "";
    const element = svgElement("path", { class: `cr-edge${bundle}`, "data-edge": n, d: wayOf(this.layout, n) });
    this.edges.append(element);
    this.wires.set(n, { element, shown: "" });
  }

  addBox(b) {
    const box = this.layout.view.boxes[b];
    const place = this.layout.places[b];
    const element = svgElement("g", { "data-node": b });
    const slots = { element, shown: "", texts: { data: "", grad: "" }, base: `cr-node cr-${box.kind}${box.isGroup ? " cr-group" : ""}` };
    if (box.symbol) element.append(...this.operation(box, place));
    if (box.isGroup) this.group(box, place, slots);
    else if (this.layout.sideways) this.row(box, place, slots);
    else this.stack(box, place, slots);
    this.boxes.append(element);
    this.nodes.set(b, slots);
    this.onBox(b, slots);
  }

  operation(box, place) {
    const { size, middle, opStart, opEnd, start } = place;
    const sideways = this.layout.sideways;
    const [x, y] = sideways ? [opStart, middle - size.opAcross / 2] : [middle - size.opAcross / 2, opStart];
    const [width, height] = sideways ? [size.opAlong, size.opAcross] : [size.opAcross, size.opAlong];
    const link = sideways ? `M${coordinate(opEnd)},${coordinate(middle)}H${coordinate(start)}` : `M${coordinate(middle)},${coordinate(opEnd)}V${coordinate(start)}`;
    return [
      svgElement("path", { class: "cr-link", d: link }),
      svgRect("cr-circle", x, y, width, height, LAYOUT.radius),
      svgText("cr-op", x + width / 2, y + height / 2 + 4.5, opText(box), "middle"),
    ];
  }

  // name | data | grad
  row(box, { x, y, width, height, data, grad }, slots) {
    const hasData = box.showsData;
    const name = width - grad - (hasData ? data : 0);
    const r = 8;
    const head = `M${coordinate(x + name)},${coordinate(y)}H${coordinate(x + r)}a${r},${r} 0 0 0 ${-r},${r}V${coordinate(y + height - r)}a${r},${r} 0 0 0 ${r},${r}H${coordinate(x + name)}Z`;
    slots.element.append(
      svgRect("cr-body", x, y, width, height, r),
      svgElement("path", { class: "cr-head", d: head }),
      svgRect("cr-frame", x, y, width, height, r),
      svgText("cr-name", x + name / 2, y + height / 2 + 4.5, box.title, "middle")
    );
    let at = x + name;
    if (hasData) {
      slots.data = this.captioned("data", at, y, slots);
      at += data;
      slots.element.append(svgElement("line", { class: "cr-rule", x1: coordinate(at), y1: coordinate(y + 8), x2: coordinate(at), y2: coordinate(y + height - 8) }));
    }
    slots.grad = this.captioned("grad", at, y, slots);
  }

  captioned(caption, x, y, slots) {
    const number = svgText(`cr-number cr-${caption}`, x + LAYOUT.pad, y + 31.5, "");
    slots.element.append(svgText("cr-caption", x + LAYOUT.pad, y + 15, caption), number);
    return number;
  }

  // The same from top to bottom.
  stack(box, { x, y, width, height }, slots) {
    slots.element.append(svgRect("cr-body", x, y, width, height, 8), this.topHead(x, y, width, LAYOUT.header), svgRect("cr-frame", x, y, width, height, 8),
      svgText("cr-name", x + width / 2, y + 18, box.title, "middle"));
    let at = y + LAYOUT.header;
    if (box.showsData) {
      slots.data = this.line("data", x, at, width, slots);
      at += LAYOUT.row;
    }
    slots.grad = this.line("grad", x, at, width, slots);
  }

  group(box, { x, y, width, height }, slots) {
    const head = LAYOUT.groupHead + LAYOUT.line * box.lines.length;
    for (let k = Math.min(2, box.results.length - 1); k > 0; k--) slots.element.append(svgRect("cr-card", x + 4 * k, y + 4 * k, width, height, 8));
    slots.element.append(svgRect("cr-body", x, y, width, height, 8), this.topHead(x, y, width, head), svgRect("cr-frame", x, y, width, height, 8));
    box.lines.forEach((line, k) => slots.element.append(svgText("cr-title", x + LAYOUT.pad, y + 18 + k * LAYOUT.line, line)));
    slots.element.append(svgText("cr-note", x + LAYOUT.pad, y + head - 8, counted(box.nodes.length, "node")));
    slots.data = this.line("data", x, y + head, width, slots);
    slots.grad = this.line("grad", x, y + head + LAYOUT.row, width, slots);
  }

  topHead(x, y, width, height, r = 8) {
    const d = `M${coordinate(x)},${coordinate(y + height)}V${coordinate(y + r)}a${r},${r} 0 0 1 ${r},${-r}H${coordinate(x + width - r)}a${r},${r} 0 0 1 ${r},${r}V${coordinate(y + height)}Z`;
    return svgElement("path", { class: "cr-head", d });
  }

  line(caption, x, y, width, slots) {
    const number = svgText(`cr-number cr-${caption}`, x + width - LAYOUT.pad, y + 15, "", "end");
    slots.element.append(svgText("cr-caption", x + LAYOUT.pad, y + 15, caption), number);
    return number;
  }

  // Only what changes is touched.
  paintBox(b, className, data, grad, label) {
    const slots = this.nodes.get(b);
    const shown = `${slots.base} ${className}`;
    if (slots.shown !== shown) slots.element.setAttribute("class", (slots.shown = shown));
    for (const [kind, text] of [["data", data], ["grad", grad]]) {
      if (!slots[kind] || slots.texts[kind] === text) continue;
      slots.texts[kind] = text;
      slots[kind].textContent = text === null ? "·" : text;
      slots[kind].classList.toggle("is-empty", text === null);
    }
    if (slots.label !== label) slots.element.setAttribute("aria-label", (slots.label = label));
  }

  paintWire(n, className) {
    const wire = this.wires.get(n);
    if (wire.shown === className) return;
    wire.element.classList.remove(...wire.shown.split(" ").filter(Boolean));
    wire.element.classList.add(...className.split(" ").filter(Boolean));
    wire.shown = className;
  }

  // A small label at a corner of the box; nothing where `text` is empty.
  badge(b, text, className = "badge") {
    const slots = this.nodes.get(b);
    if (!slots.badge && !text) return;
    if (!text) {
      slots.badge.remove();
      slots.badge = null;
      return;
    }
    if (!slots.badge) {
      const { x, y } = this.layout.places[b];
      slots.badge = pill(className, Math.max(18, 8 + 6.5 * String(text).length), 16);
      slots.badge.setAttribute("transform", `translate(${coordinate(x)} ${coordinate(y)})`);
      slots.element.append(slots.badge);
    }
    const label = slots.badge.querySelector("text");
    if (label.textContent !== String(text)) label.textContent = text;
  }

  // Half-way along a wire; the two wires of a + a have theirs side by side.
  labelWire(n, text, className) {
    const wire = this.wires.get(n);
    if (!wire) return;
    const label = pill(className, text.length * 6 + 8, 15);
    const length = wire.element.getTotalLength() - 13;
    const point = wire.element.getPointAtLength(length / 2);
    const { lane, lanes } = this.layout.view.wires[n];
    const apart = (lane - (lanes - 1) / 2) * 17;
    if (this.layout.sideways) point.y += apart;
    else point.x += apart * 2.6;
    label.setAttribute("transform", `translate(${coordinate(point.x)} ${coordinate(point.y)})`);
    label.querySelector("text").textContent = text;
    this.labels.append(label);
  }
}

function pill(className, width, height) {
  return svgElement("g", { class: className }, svgRect("", -width / 2, -height / 2, width, height, height / 2), svgElement("text", { y: 4 }));
}

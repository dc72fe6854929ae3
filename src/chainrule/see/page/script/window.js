// What the window shows of the drawing: room for numbers, zoom, and following the step.

function hasRoom() {
  for (const b of drawing.whole ? view.boxes.keys() : drawing.nodes.keys()) {
    const box = view.boxes[b];
    if (letters(dataText(box, numbers)) > roomOf(box)[0] || letters(gradText(box, numbers)) > roomOf(box)[1]) return false;
  }
  return true;
}

const measured = new WeakMap(); // how much room a box was given, which only grows
function roomOf(box) {
  if (!measured.has(box)) measured.set(box, [NUMBER_ROOM, NUMBER_ROOM]);
  return measured.get(box);
}

function measure() {
  const longest = film.events.reduce((most, { total }) => (total === null || total === undefined ? most : Math.max(most, letters(short(total)))), 0);
  for (const box of view.boxes) {
    const [data, grad] = roomOf(box);
    const least = box.isGroup ? 0 : longest;
    measured.set(box, [Math.max(data, letters(dataText(box, numbers))), Math.max(grad, least, letters(gradText(box, numbers)))]);
  }
}

const natural = () => [drawing.layout.width, drawing.layout.height];

function fitting(layout = drawing.layout) {
  const area = find("scroll");
  return Math.min(area.clientWidth / layout.width, (area.clientHeight - TOOLS) / layout.height);
}

function setZoom(value, around) {
  const area = find("scroll");
  const [width, height] = natural();
  const least = Math.min(0.1, fitting());
  const before = zoom;
  zoom = Math.min(3, Math.max(least, value));
  const [x, y] = around || [area.clientWidth / 2, area.clientHeight / 2];
  const [left, top] = [(area.scrollLeft + x) / before, (area.scrollTop + y) / before];
  drawing.svg.style.width = `${width * zoom}px`;
  drawing.svg.style.height = `${height * zoom}px`;
  if (around) area.scrollTo({ left: left * zoom - x, top: top * zoom - y, behavior: "instant" });
  else follow(true);
  lookAround();
}

function show(choosesZoom = true) {
  measure();
  const layout = layOut(view, sideways, roomOf);
  drawing.show(layout);
  drawing.svg.setAttribute("aria-label", `The graph, ${sideways ? "from left to right" : "from top to bottom"}`);
  const small = document.body.dataset.compact !== undefined;
  const smallest = small ? 0.55 : sideways ? 0.65 : 0.8; // that can still be read
  setZoom(choosesZoom ? Math.min(1.5, Math.max(smallest, fitting())) : zoom);
}

// From left to right as in the lecture, unless that would be too small to read.
function betterWay() {
  if (view.boxes.length > DRAWN_WHOLE) return true;
  measure();
  const [across, down] = [true, false].map((way) => fitting(layOut(view, way, roomOf)));
  return across >= Math.min(0.65, down);
}

// Draw what the window shows, and a little more.
let looking = false;
function lookAround() {
  const frame = shownNow && shownNow.frame.at === now ? shownNow.frame : frameAt(film, now);
  if (!drawing.whole) {
    const [outer, inner] = [find("scroll"), drawing.svg].map((one) => one.getBoundingClientRect());
    const [left, top] = [(outer.left - inner.left) / zoom, (outer.top - inner.top) / zoom];
    const margin = 200;
    const seen = [left - margin, top - margin, left + outer.width / zoom + margin, top + outer.height / zoom + margin];
    drawing.look(seen, zoom, [frame.box, ...(frame.child === undefined ? [] : [frame.child])]);
  }
  if (shownNow) renderGraph(shownNow);
}

find("scroll").addEventListener("scroll", () => {
  if (looking || drawing.whole) return;
  looking = true;
  requestAnimationFrame(() => {
    looking = false;
    lookAround();
  });
});

// Keep the box in focus in view: that of the tab, or whatever the step hands something to.
function follow(atOnce = false) {
  const area = find("scroll");
  if (!shownNow || !area.clientWidth) return;
  const { frame } = shownNow;
  const inFocus = tab.focus ? tab.focus() : frame.child === undefined ? frame.box : frame.child;
  const place = drawing.layout.places[inFocus];
  const [svg, outer] = [drawing.svg.getBoundingClientRect(), area.getBoundingClientRect()];
  const inner = {
    left: svg.left + place.x * zoom, right: svg.left + (place.x + place.width) * zoom,
    top: svg.top + place.y * zoom, bottom: svg.top + (place.y + place.height) * zoom,
  };
  const margin = 24;
  const inside =
    inner.left >= outer.left + margin && inner.right <= outer.right - margin &&
    inner.top >= outer.top + margin && inner.bottom <= outer.bottom - TOOLS;
  if (inside) return;
  area.scrollTo({
    left: area.scrollLeft + (inner.left + inner.right) / 2 - (outer.left + outer.right) / 2,
    top: area.scrollTop + (inner.top + inner.bottom) / 2 - (outer.top + outer.bottom) / 2,
    behavior: atOnce || calm.matches || !drawing.whole ? "instant" : "smooth",
  });
  if (!drawing.whole) lookAround();
}

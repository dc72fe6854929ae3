// Places in pixels: a view with its ranks in, boxes and the ways of wires out. It follows
// chainrule.see.drawing.layout, so that the page looks like draw(). "Along" is the direction the
// graph runs in, "across" the other: x and y when it runs sideways.

const LAYOUT = {
  margin: 24, radius: 16, betweenRanks: 48, betweenBoxes: 20, beforeBody: 16, lane: 9, arrow: 5,
  name: 8, digit: 7.3, title: 7.6, pad: 10, caption: 34, cell: 42, header: 26, row: 19, line: 17, groupHead: 27, longest: 26,
};
const NUMBER_ROOM = 7; // letters kept free for a number, which may change as an input is dragged

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const letters = (text) => (/^[ -~…]*$/.test(text) ? text.length : wideLetters(text));
const wideLetters = (text) => [...text].reduce((sum, c) => sum + (/\p{M}/u.test(c) ? 0 : WIDE.test(c) ? 2 : 1), 0);

function titleLines(title) {
  const lines = [""];
  for (let rest of title.split(" ")) {
    while (rest.length > LAYOUT.longest) {
      lines.push(rest.slice(0, LAYOUT.longest));
      rest = rest.slice(LAYOUT.longest);
    }
    const line = lines[lines.length - 1];
    if (line && letters(line) + 1 + letters(rest) > LAYOUT.longest) lines.push(rest);
    else lines[lines.length - 1] = line ? `${line} ${rest}` : rest;
  }
  return lines.filter((line, k) => line || k === 0);
}

// `room` has the letters that data and grad need, by box.
function layOut(view, sideways, room) {
  const { boxes, given } = view;
  const cells = boxes.map((box) => cellsOf(box, room(box)));
  const columns = new Map(); // numbers line up below one another in a rank
  boxes.forEach((box, b) => {
    if (box.isGroup) return;
    const [data, grad] = columns.get(given.rank[b]) || [0, 0];
    columns.set(given.rank[b], [Math.max(data, cells[b].data), Math.max(grad, cells[b].grad)]);
  });
  const sizes = boxes.map((box, b) => sizeOf(box, cells[b], columns.get(given.rank[b]), room(box), sideways));
  const grid = makeGrid(view, sizes);
  const places = sizes.map((size, b) => {
    const end = grid.end[given.rank[b]];
    const start = end - size.along;
    const opEnd = size.opAlong ? start - LAYOUT.beforeBody : start;
    const middle = grid.across(given.across[b]);
    const [data, grad] = columns.get(given.rank[b]) || [0, 0];
    const place = { start, end, middle, opStart: opEnd - size.opAlong, opEnd, size, data, grad };
    [place.x, place.y, place.width, place.height] = sideways
      ? [start, middle - size.across / 2, size.along, size.across]
      : [middle - size.across / 2, start, size.across, size.along];
    return place;
  });
  const layout = { sideways, places, grid, view };
  layout.ports = portsOf(layout);
  const along = grid.end[grid.end.length - 1] + LAYOUT.margin;
  const across = grid.across(Math.max(...widest(view))) + grid.first;
  [layout.width, layout.height] = sideways ? [along, across] : [across, along];
  return layout;
}

function* widest({ given }) {
  yield given.across.reduce((a, b) => Math.max(a, b), 0);
  yield given.bends.reduce((most, [, , ...bends]) => Math.max(most, ...bends), 0);
}

function cellsOf(box, [data, grad]) {
  return {
    name: Math.max(2, letters(box.title)) * LAYOUT.name + 2 * LAYOUT.pad,
    data: !box.showsData ? 0 : data * LAYOUT.digit + 2 * LAYOUT.pad,
    grad: grad * LAYOUT.digit + 2 * LAYOUT.pad,
  };
}

function sizeOf(box, cells, column, [dataRoom, gradRoom], sideways) {
  const { pad, title, caption, digit, groupHead, line, row, radius, header, cell, name } = LAYOUT;
  if (box.isGroup) {
    box.lines = titleLines(box.title);
    const texts = [...box.lines, counted(box.nodes.length, "node")];
    const width = 2 * pad + Math.max(Math.max(...texts.map(letters)) * title, caption + Math.max(dataRoom, gradRoom) * digit);
    const height = groupHead + line * box.lines.length + 2 * row + 6;
    return sideways ? { along: width, across: height, opAlong: 0, opAcross: 0 } : { along: height, across: width, opAlong: 0, opAcross: 0 };
  }
  const opHeight = box.symbol ? 2 * radius : 0;
  const opWidth = box.symbol ? Math.max(opHeight, letters(opText(box)) * name + 18) : 0;
  const hasData = box.showsData;
  if (sideways) return { along: cells.name + column[1] + (hasData ? column[0] : 0), across: cell, opAlong: opWidth, opAcross: opHeight };
  const width = Math.max(cells.name, cells.data + caption - 4, cells.grad + caption - 4);
  return { along: header + (hasData ? 2 : 1) * row + 6, across: width, opAlong: opHeight, opAcross: opWidth };
}

const opText = (box) => (box.symbol.length > 16 ? `${box.symbol.slice(0, 8)}…${box.symbol.slice(-7)}` : box.symbol);

function makeGrid({ given }, sizes) {
  const largest = sizes.reduce((most, size) => Math.max(most, size.across, size.opAcross), 0);
  const extents = [];
  sizes.forEach((size, b) => {
    const rank = given.rank[b];
    const before = size.opAlong ? size.opAlong + LAYOUT.beforeBody : 0;
    extents[rank] = Math.max(extents[rank] || 0, size.along + before);
  });
  const grid = { first: LAYOUT.margin + largest / 2, pitch: largest + LAYOUT.betweenBoxes, start: [], end: [] };
  let along = LAYOUT.margin;
  for (let rank = 0; rank < extents.length; rank++) {
    grid.start.push(along);
    grid.end.push(along + (extents[rank] || 0));
    along += (extents[rank] || 0) + LAYOUT.betweenRanks;
  }
  grid.across = (x) => grid.first + x * grid.pitch;
  return grid;
}

const laneOf = (wire) => (wire.lane - (wire.lanes - 1) / 2) * LAYOUT.lane;

function bendsOf({ view, grid }, wire) {
  const chain = view.bends.get(`${wire.source} ${wire.target}`) || [];
  return chain.map((x) => grid.across(x) + laneOf(wire));
}

// Where each wire arrives, across: side by side, in the order in which they come in.
function portsOf(layout) {
  const { view, places } = layout;
  const ports = new Float64Array(view.wires.length);
  view.into.forEach((numbers, target) => {
    const arriving = numbers.map((n) => {
      const wire = view.wires[n];
      const bends = bendsOf(layout, wire);
      return { n, from: bends.length ? bends[bends.length - 1] : places[wire.source].middle, operand: wire.operand };
    });
    arriving.sort((a, b) => a.from - b.from || a.operand - b.operand || a.n - b.n);
    const { size, middle } = places[target];
    const room = size.opAlong ? 1.25 * LAYOUT.radius : size.across - 24;
    const step = Math.min(size.opAlong ? 10 : 18, room / Math.max(1, arriving.length - 1));
    arriving.forEach(({ n }, k) => (ports[n] = middle + (k - (arriving.length - 1) / 2) * step));
  });
  return ports;
}

// How far behind its foremost point a circle, or a pill, is off its middle.
function inset(size, offset) {
  if (!size.opAlong) return 0;
  const off = Math.max(0, Math.abs(offset) - (size.opAcross / 2 - LAYOUT.radius));
  return LAYOUT.radius - Math.sqrt(Math.max(0, LAYOUT.radius ** 2 - off * off));
}


// SVG path data of one wire: straight through the ranks it passes, bent in the gaps between them.
function wayOf(layout, n, arrow = true) {
  const { view, places, grid, ports, sideways } = layout;
  const wire = view.wires[n];
  const [source, target] = [places[wire.source], places[wire.target]];
  const point = (along, across) => (sideways ? `${coordinate(along)},${coordinate(across)}` : `${coordinate(across)},${coordinate(along)}`);
  const port = ports[n];
  const end = target.opStart + inset(target.size, port - target.middle);
  const [from, to] = [view.given.rank[wire.source], view.given.rank[wire.target]];
  let [along, across] = [source.end, source.middle + laneOf(wire)];
  const stops = bendsOf(layout, wire).map((bend, k) => [grid.start[from + k + 1], grid.end[from + k + 1], bend]);
  stops.push([grid.start[to], end, port]);
  let path = `M${point(along, across)}`;
  for (const [start, stop, level] of stops) {
    const middle = (along + start) / 2;
    path += `C${point(middle, across)} ${point(middle, level)} ${point(start, level)}`;
    if (stop > start) path += `L${point(stop, level)}`;
    [along, across] = [stop, level];
  }
  if (!arrow) return path;
  const side = 0.8 * LAYOUT.arrow;
  return `${path}M${point(end - LAYOUT.arrow, port - side)}L${point(end, port)} ${point(end - LAYOUT.arrow, port + side)}`;
}

// The rectangle that a wire stays in, for deciding whether it can be seen.
function extentOf(layout, n) {
  const { view, places, ports, sideways } = layout;
  const wire = view.wires[n];
  const levels = [places[wire.source].middle, ports[n], ...bendsOf(layout, wire)];
  const [low, high] = [Math.min(...levels) - 12, Math.max(...levels) + 12];
  const [start, end] = [places[wire.source].end, places[wire.target].start];
  return sideways ? [start, low, end, high] : [low, start, high, end];
}

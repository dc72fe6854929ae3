// A small GIF encoder: pixels in, bytes out. One palette for the whole film, made from its first
// frames; of each later frame only the rectangle that changed is stored.

class Gif {
  constructor(width, height) {
    [this.width, this.height] = [width, height];
    this.parts = [];
    this.palette = null;
    this.before = null;
  }

  add(pixels, hundredths) {
    this.palette ??= new Palette(pixels);
    const indexed = new Uint8Array(this.width * this.height);
    for (let p = 0; p < indexed.length; p++) indexed[p] = this.palette.nearest(pixels[4 * p], pixels[4 * p + 1], pixels[4 * p + 2]);
    const [left, top, width, height] = this.changed(indexed);
    const part = new Uint8Array(width * height);
    for (let y = 0; y < height; y++) part.set(indexed.subarray((top + y) * this.width + left, (top + y) * this.width + left + width), y * width);
    const word = (n) => [n & 255, n >> 8];
    const control = [0x21, 0xf9, 4, 4, ...word(Math.round(hundredths)), 0, 0];
    const rectangle = [0x2c, ...word(left), ...word(top), ...word(width), ...word(height), 0];
    this.parts.push(Uint8Array.from([...control, ...rectangle, 8]));
    this.parts.push(...blocks(packed(part)));
    this.before = indexed;
  }

  changed(indexed) {
    if (!this.before) return [0, 0, this.width, this.height];
    let [left, top, right, bottom] = [this.width, this.height, -1, -1];
    for (let y = 0, p = 0; y < this.height; y++)
      for (let x = 0; x < this.width; x++, p++)
        if (indexed[p] !== this.before[p]) {
          if (x < left) left = x;
          if (x > right) right = x;
          if (y < top) top = y;
          bottom = y;
        }
    return right < 0 ? [0, 0, 1, 1] : [left, top, right - left + 1, bottom - top + 1];
  }

  finish() {
    const word = (n) => [n & 255, n >> 8];
    const head = [...[..."GIF89a"].map((c) => c.charCodeAt(0)), ...word(this.width), ...word(this.height), 0xf7, 0, 0, ...this.palette.bytes(),
      0x21, 0xff, 11, ...[..."NETSCAPE2.0"].map((c) => c.charCodeAt(0)), 3, 1, 0, 0, 0];
    const all = [Uint8Array.from(head), ...this.parts, Uint8Array.from([0x3b])];
    const bytes = new Uint8Array(all.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of all) bytes.set(part, at), (at += part.length);
    return bytes;
  }
}

// Up to 256 colours: the commonest of a frame, and a coarse cube for whatever comes later.
class Palette {
  constructor(pixels) {
    const counts = new Map();
    for (let p = 0; p < pixels.length; p += 4) {
      const key = (pixels[p] << 16) | (pixels[p + 1] << 8) | pixels[p + 2];
      counts.set(key, (counts.get(key) || 0) + 1);
    }
    const common = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 131).map(([key]) => key);
    const cube = [];
    const levels = [0, 64, 128, 191, 255];
    for (const r of levels) for (const g of levels) for (const b of levels) cube.push((r << 16) | (g << 8) | b);
    this.colours = [...new Set([...common, ...cube])].slice(0, 256);
    this.known = new Map(this.colours.map((key, k) => [key, k]));
  }

  nearest(r, g, b) {
    const key = (r << 16) | (g << 8) | b;
    let found = this.known.get(key);
    if (found !== undefined) return found;
    let least = Infinity;
    this.colours.forEach((colour, k) => {
      const distance = ((colour >> 16) - r) ** 2 + (((colour >> 8) & 255) - g) ** 2 + ((colour & 255) - b) ** 2;
      if (distance < least) [least, found] = [distance, k];
    });
    this.known.set(key, found);
    return found;
  }

  bytes() {
    const bytes = new Uint8Array(768);
    this.colours.forEach((key, k) => bytes.set([key >> 16, (key >> 8) & 255, key & 255], 3 * k));
    return bytes;
  }
}

// Lempel, Ziv and Welch's codes of 9 to 12 bits.
function packed(pixels) {
  const out = [];
  let [bits, held, size, next] = [0, 0, 9, 258];
  let table = new Map();
  const write = (code) => {
    bits |= code << held;
    held += size;
    for (; held >= 8; held -= 8, bits >>>= 8) out.push(bits & 255);
  };
  write(256);
  let prefix = pixels[0];
  for (let p = 1; p < pixels.length; p++) {
    const key = (prefix << 8) | pixels[p];
    const code = table.get(key);
    if (code !== undefined) {
      prefix = code;
      continue;
    }
    write(prefix);
    if (next === 4096) {
      write(256);
      [table, size, next] = [new Map(), 9, 258];
    } else {
      if (next === 1 << size) size++;
      table.set(key, next++);
    }
    prefix = pixels[p];
  }
  write(prefix);
  write(257);
  if (held) out.push(bits & 255);
  return out;
}

function* blocks(bytes) {
  for (let at = 0; at < bytes.length; at += 255) {
    const part = bytes.slice(at, at + 255);
    yield Uint8Array.from([part.length, ...part]);
  }
  yield Uint8Array.from([0]);
}

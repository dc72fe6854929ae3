// The step and the inputs in the address, after the #, so that a link shows what its sender saw.

let waitingToWrite = null;

// An input's name, or its number where several have that name.
const bearers = new Map();
for (const i of inputs) bearers.set(graph.names[i], (bearers.get(graph.names[i]) || 0) + 1);
const keyOf = (i) => (bearers.get(graph.names[i]) > 1 ? `:${i}` : encodeURIComponent(graph.names[i]));

function address() {
  const parts = [`step=${now + 1}`];
  if (way.length > 1) parts.push(`inside=${way.slice(1).join(".")}`);
  if (tab && tab.id !== "step") parts.push(`tab=${tab.id}`);
  if (tab && tab.id === "broken") parts.push(`mistake=${broken.name}`);
  if (tab && tab.id === "paths" && paths.node !== null) parts.push(`node=${paths.node}`);
  if (document.body.dataset.compact === "asked") parts.push("compact");
  if (document.body.dataset.large !== undefined) parts.push("large");
  for (const [i, x] of moved) parts.push(`in.${keyOf(i)}=${x}`);
  return `#${parts.join("&")}`;
}

function remember() {
  window.clearTimeout(waitingToWrite);
  waitingToWrite = window.setTimeout(() => {
    try {
      window.history.replaceState(null, "", address());
    } catch {
      // A notebook's frame has no address of its own.
    }
  }, 150);
}

// Whatever the address says that makes no sense here is passed over.
function readAddress() {
  const said = new Map();
  for (const part of window.location.hash.slice(1).split("&")) {
    const [key, ...rest] = part.split("=");
    said.set(key, rest.join("="));
  }
  const whole = (key) => (/^\d{1,9}$/.test(said.get(key) || "") ? Number(said.get(key)) : null);
  const named = new Map(inputs.map((i) => [keyOf(i), i]));
  moved.clear();
  for (const [key, text] of said) {
    const i = key.startsWith("in.") ? named.get(key.slice(3)) : undefined;
    const x = parsed(text);
    if (i !== undefined && x !== null && !graph.frozen[i]) moved.set(i, x);
  }
  setLarge(said.has("large"));
  if (said.has("compact")) document.body.dataset.compact = "asked";
  numbers = computeAll(graph, moved);
  const inside = (said.get("inside") || "").split(".").filter((n) => /^\d{1,7}$/.test(n)).map(Number);
  way.splice(0, way.length, 0, ...(inside.every((n) => n > 0 && n < given.views.length) ? inside : []));
  view = viewNumbered(way[way.length - 1]);
  film = makeFilm(graph, view, numbers);
  now = Math.min(Math.max((whole("step") || 1) - 1, 0), film.length - 1);
  if (given.mistakes.some(({ name }) => name === said.get("mistake"))) broken.name = find("broken-kind").value = said.get("mistake");
  if (whole("node") !== null && whole("node") < graph.count) paths.node = whole("node");
  return tabs.some(({ id }) => id === said.get("tab")) ? said.get("tab") : "step";
}

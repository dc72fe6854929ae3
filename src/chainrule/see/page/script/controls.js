// Buttons, keys, wheel, touch; and the first picture.

const onClick = (id, action) => find(id).addEventListener("click", action);
const jump = (at) => {
  if (tab.holdsFilm) return;
  if (tab.showsAll) openTab("step");
  pause();
  go(at);
};
onClick("first", () => jump(0));
onClick("back", () => step(-1));
onClick("play", toggle);
onClick("next", () => step(1));
onClick("last", () => jump(film.length - 1));
onClick("turn", () => {
  sideways = !sideways;
  show();
  render();
});
onClick("smaller", () => setZoom(zoom / 1.25));
onClick("larger", () => setZoom(zoom * 1.25));
onClick("fit", () => setZoom(fitting()));
onClick("history-close", () => choose(chosen));
onClick("inputs-reset", resetInputs);
onClick("help", () => find("help-dialog").showModal());
onClick("share", () => {
  const framed = window.location.protocol === "about:"; // a notebook's frame has no address
  find("share-link").value = framed ? address() : window.location.href.split("#")[0] + address();
  find("share-said").textContent = framed ? "Save the page to a file to share it: what follows the # opens it at this step." : "";
  find("share-dialog").showModal();
});
onClick("theme", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
onClick("large", () => {
  setLarge(document.body.dataset.large === undefined);
  fitWindow();
  remember();
});
onClick("compact", () => {
  if (document.body.dataset.compact === "asked") delete document.body.dataset.compact;
  else document.body.dataset.compact = "asked";
  fitWindow();
  remember();
});
find("scrub").addEventListener("input", (event) => jump(Number(event.target.value)));
find("inputs-find").addEventListener("input", listInputs);
for (const button of document.querySelectorAll(".stages button"))
  button.addEventListener("click", () => {
    if (tab.holdsFilm) openTab("step");
    jump(film.starts[Number(button.dataset.stage)]);
  });

function setLarge(on) {
  if (on) document.body.dataset.large = "";
  else delete document.body.dataset.large;
  find("large").setAttribute("aria-pressed", on);
}

// --- keys -----------------------------------------------------------------------------------------

const keys = {
  ArrowRight: () => step(1),
  ArrowLeft: () => step(-1),
  Home: () => jump(0),
  End: () => jump(film.length - 1),
  " ": toggle,
  "+": () => setZoom(zoom * 1.25),
  "=": () => setZoom(zoom * 1.25),
  "-": () => setZoom(zoom / 1.25),
  0: () => setZoom(fitting()),
  "?": () => find("help-dialog").showModal(),
  Escape: () => {
    if (chosen !== null) choose(chosen);
    else if (way.length > 1) walkTo(way.slice(0, -1));
  },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const { target } = event;
  if (target.closest("dialog") || target.matches("select, input:not([type=range])")) return;
  if (target.matches("button") && event.key === " ") return;
  if (target.matches("input[type=range]") && ![" ", "?", "Escape"].includes(event.key)) return; // a slider has the others already
  const action = keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

// --- wheel, pinch and drag --------------------------------------------------------------------------

const area = find("scroll");
const inArea = (event) => {
  const { left, top } = area.getBoundingClientRect();
  return [event.clientX - left, event.clientY - top];
};
area.addEventListener("wheel", (event) => {
  if (event.shiftKey) return;
  event.preventDefault();
  const lines = event.deltaMode === 1 ? 20 : 1;
  setZoom(zoom * Math.exp(-Math.max(-200, Math.min(200, event.deltaY * lines)) * (event.ctrlKey ? 0.01 : 0.0015)), inArea(event));
}, { passive: false });

const touches = new Map();
let pinch = null; // the distance of two fingers, and the zoom, when they came down
let drag = null;
area.addEventListener("pointerdown", (event) => {
  touches.set(event.pointerId, event);
  if (touches.size === 2) {
    const [a, b] = [...touches.values()];
    pinch = { distance: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), zoom };
  } else if (event.pointerType === "mouse" && event.button === 0 && !event.target.closest(".cr-node")) {
    drag = { x: event.clientX, y: event.clientY, left: area.scrollLeft, top: area.scrollTop };
    area.setPointerCapture(event.pointerId);
  }
});
area.addEventListener("pointermove", (event) => {
  if (touches.has(event.pointerId)) touches.set(event.pointerId, event);
  if (pinch && touches.size === 2) {
    const [a, b] = [...touches.values()];
    const { left, top } = area.getBoundingClientRect();
    const distance = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    setZoom((pinch.zoom * distance) / pinch.distance, [(a.clientX + b.clientX) / 2 - left, (a.clientY + b.clientY) / 2 - top]);
  } else if (drag) {
    area.scrollTo({ left: drag.left - (event.clientX - drag.x), top: drag.top - (event.clientY - drag.y), behavior: "instant" });
  }
});
for (const name of ["pointerup", "pointercancel"])
  area.addEventListener(name, (event) => {
    touches.delete(event.pointerId);
    if (touches.size < 2) pinch = null;
    drag = null;
  });

// --- the window -----------------------------------------------------------------------------------

const low = window.matchMedia("(max-height: 540px)");
function fitWindow() {
  if (document.body.dataset.compact !== "asked") {
    if (low.matches) document.body.dataset.compact = "low";
    else delete document.body.dataset.compact;
  }
  find("compact").setAttribute("aria-pressed", document.body.dataset.compact !== undefined);
  sideways = betterWay();
  show();
  render();
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width && low.matches === (document.body.dataset.compact === "low")) return; // a phone's address bar came or went
  width = window.innerWidth;
  fitWindow();
});
window.addEventListener("hashchange", () => {
  const id = readAddress();
  renderCrumbs();
  listInputs();
  fitWindow();
  openTab(id);
});

function start() {
  const frozen = graph.forms.filter(({ rule }) => !rule).map(({ symbol }) => symbol || "custom");
  const notLive = frozen.length ? ` What the page cannot compute: ${frozen.join(", ")}. Inputs that feed it cannot be moved.` : "";
  find("help-live").textContent =
    "The page computes this graph again with other inputs; your program is not run again, " +
    `so a choice it made by comparing numbers stays as it was.${notLive}`;
  find("inputs-find").hidden = inputs.length <= MOST_INPUTS;
  find("inputs").hidden = !inputs.length;
  const id = readAddress();
  tab = tabs[0];
  if (document.body.dataset.compact !== "asked" && low.matches) document.body.dataset.compact = "low";
  find("compact").setAttribute("aria-pressed", document.body.dataset.compact !== undefined);
  listInputs();
  renderCrumbs();
  sideways = betterWay();
  show();
  const at = now;
  openTab(id);
  if (id === "step" || !tab.holdsFilm) go(at);
  follow(true);
}
start();

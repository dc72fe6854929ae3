// The three tabs, the theme, the address; and the first picture.

const VIEWS = {
  formulas: () => formulas.asked || drawFormula(""),
  network: () => (network.started ? fitDiagram() : startNetwork()),
  language: () => language.started || startLanguage(),
};
let view = null;

function openView(name) {
  view = name;
  for (const one of Object.keys(VIEWS)) {
    find(`view-${one}`).hidden = one !== name;
    find(`show-${one}`).setAttribute("aria-selected", one === name);
    find(`show-${one}`).tabIndex = one === name ? 0 : -1;
  }
  VIEWS[name]();
  remember();
}

for (const name of Object.keys(VIEWS)) find(`show-${name}`).addEventListener("click", () => openView(name));
document.querySelector(".views").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const names = Object.keys(VIEWS);
  const next = names[(names.indexOf(view) + by + names.length) % names.length];
  openView(next);
  find(`show-${next}`).focus();
});

// The tab and the expression are in the address, so that reloading shows them again.
function remember() {
  const parts = new URLSearchParams({ view, f: find("formula").value, in: formulas.values });
  window.history.replaceState(null, "", `#${parts}`);
}

find("help").addEventListener("click", () => find("help-dialog").showModal());
find("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  recolour();
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

function recolour() {
  palette = null;
  for (const frames of everyFrame) frames.dress();
  if (network.state) renderNetwork();
}

window.addEventListener("resize", later(fitDiagram));

{
  const said = new URLSearchParams(window.location.hash.slice(1));
  const [text, values] = EXAMPLES[0];
  find("formula").value = said.get("f") ?? text;
  find("formula-values").value = formulas.values = said.get("f") ? said.get("in") ?? "" : values;
  openView(said.get("view") in VIEWS ? said.get("view") : "formulas");
}

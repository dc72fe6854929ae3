// Collapsed boxes open: the inside of a box is a view of its own, down to single nodes.

const way = [0]; // the views walked into, the whole graph first

const canOpen = (box) => box.isGroup && box.inside !== null && box.inside !== undefined;

// `inside` is the number of a view; a box of many alike has a view for one of them, chosen below.
function openBox(b) {
  const box = view.boxes[b];
  if (!canOpen(box)) return;
  walkTo([...way, box.inside]);
}

function walkTo(next) {
  pause();
  const stage = stageOf(film, now);
  way.splice(0, way.length, ...next);
  view = viewNumbered(way[way.length - 1]);
  chosen = null;
  document.body.removeAttribute("data-history");
  film = makeFilm(graph, view, numbers);
  now = film.starts[stage];
  sideways = betterWay();
  show();
  renderCrumbs();
  render();
  follow(true);
  remember();
}

function renderCrumbs() {
  const crumbs = find("crumbs");
  crumbs.hidden = way.length === 1;
  const parts = way.map((n, k) => {
    const title = k ? given.views[n].title : "the whole graph";
    if (k === way.length - 1) return element("span", "", title);
    const button = element("button", "", title);
    button.type = "button";
    button.addEventListener("click", () => walkTo(way.slice(0, k + 1)));
    return button;
  });
  crumbs.replaceChildren(...parts);
  const twins = given.views[way[way.length - 1]].twins;
  if (!twins) return;
  const [first, count] = twins;
  const at = way[way.length - 1] - first;
  const label = element("label", "twins", `${(at + 1).toLocaleString("en")} of ${count.toLocaleString("en")} alike `);
  const slider = element("input");
  slider.type = "range";
  [slider.min, slider.max, slider.step, slider.value] = [1, count, 1, at + 1];
  slider.id = "twin";
  slider.setAttribute("aria-label", "Which of them");
  slider.addEventListener("change", () => walkTo([...way.slice(0, -1), first + Number(slider.value) - 1]));
  label.append(slider);
  crumbs.append(label);
}

find("history-open").addEventListener("click", () => openBox(chosen));

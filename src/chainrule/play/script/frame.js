// Pages of graphs, in frames: a new one takes the place of the old one when it is ready.

function makeFrames(box, title) {
  let shown = null;
  let coming = null;
  const frames = {
    // What the page has in its address: the step, the tab, inputs that were moved.
    address: () => (shown && shown.contentWindow ? shown.contentWindow.location.hash : ""),
    show(url, hash = "") {
      if (coming) coming.remove();
      const frame = element("iframe", "is-coming");
      coming = frame;
      frame.title = title;
      frame.src = url + hash;
      frame.addEventListener("load", () => {
        if (frame !== coming) return;
        dress(frame);
        frame.classList.remove("is-coming");
        if (shown) shown.remove();
        [shown, coming] = [frame, null];
        box.classList.remove("is-stale");
      });
      box.append(frame);
    },
    clear() {
      box.replaceChildren();
      shown = coming = null;
    },
    dress: () => shown && dress(shown),
  };
  everyFrame.push(frames);
  return frames;
}

const everyFrame = [];

// The frame's page has this page's theme, and no button of its own for it.
function dress(frame) {
  const root = frame.contentDocument && frame.contentDocument.documentElement;
  if (!root) return;
  root.dataset.framed = "";
  const { theme } = document.documentElement.dataset;
  if (theme) root.dataset.theme = theme;
}

const graphFrames = makeFrames(find("graph-frames"), "The graph, step by step");

// Beside its explanation the page has little room, unless it comes below it.
const asCompact = () => (window.innerWidth > 900 ? "compact" : "");

function openGraph(title, said) {
  find("graph-title").textContent = title;
  find("graph-said").textContent = said;
  if (!find("graph-dialog").open) find("graph-dialog").showModal();
}

find("graph-dialog").addEventListener("close", () => {
  graphFrames.clear();
  find("graph-parts").hidden = true;
});

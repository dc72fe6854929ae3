// The server: what is asked of it, and the states that it streams to this page.

const POLITE = 150; // milliseconds of silence before what is typed is sent

async function post(path, body) {
  let answer;
  try {
    const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
    answer = response.headers.get("Content-Type") === "application/json" ? await response.json() : { error: await response.text() };
  } catch {
    lose();
    return { error: "the server does not answer" };
  }
  return answer;
}

function lose(reason = "The server has stopped. Start it again with: chainrule play") {
  find("lost").textContent = reason;
  find("lost").hidden = false;
}

const stream = { session: null, latest: new Map(), listeners: new Map(), drawing: false };

// The stream is opened when a laboratory is first looked at, and lives as long as the page.
function connect() {
  stream.session ??= new Promise((resolve) => {
    const source = new EventSource("events");
    source.addEventListener("session", (event) => resolve(JSON.parse(event.data)));
    for (const kind of ["network", "language"])
      source.addEventListener(kind, (event) => {
        stream.latest.set(kind, event.data);
        if (stream.drawing) return;
        stream.drawing = true;
        requestAnimationFrame(drawLatest);
      });
    source.addEventListener("error", () => {
      const opened = source.readyState !== EventSource.CLOSED;
      source.close();
      lose(opened ? undefined : "Too many pages of this server are open, or it has stopped: close some, and reload this one.");
    });
  });
  return stream.session;
}

// Only the latest state is drawn, once per picture of the screen, however many arrive.
function drawLatest() {
  stream.drawing = false;
  for (const [kind, text] of stream.latest) stream.listeners.get(kind)(JSON.parse(text));
  stream.latest.clear();
}

// A lab is asked one thing after the other. Two requests on the way at once may be answered in the other order, and then
// the page would show what the earlier one asked for.
const asked = new Map();

function ask(kind, action, given = {}) {
  const answer = Promise.resolve(asked.get(kind)).then(async () => post("ask", { session: await connect(), kind, action, given }));
  asked.set(kind, answer);
  return answer;
}

function later(action, wait = POLITE) {
  let timer = null;
  return () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(action, wait);
  };
}

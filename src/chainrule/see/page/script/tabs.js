// The panel's tabs: a step, predict, nudge, paths, mistakes, weights.

function addTab(id, title, more = {}) {
  const button = element("button", "", title);
  button.type = "button";
  button.id = `show-${id}`;
  button.setAttribute("role", "tab");
  button.setAttribute("aria-controls", `tab-${id}`);
  button.addEventListener("click", () => openTab(id));
  find("tabs").append(button);
  tabs.push({ id, button, panel: find(`tab-${id}`), ...more });
}

function openTab(id) {
  const next = tabs.find((one) => one.id === id) || tabs[0];
  if (tab && tab !== next && tab.close) tab.close();
  const isNew = tab !== next;
  tab = next;
  document.body.dataset.tab = tab.id;
  for (const one of tabs) {
    one.panel.hidden = one !== tab;
    one.button.setAttribute("aria-selected", one === tab);
    one.button.tabIndex = one === tab ? 0 : -1;
  }
  if (isNew && tab.open) tab.open();
  render();
  remember();
}

find("tabs").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length];
  openTab(next.id);
  next.button.focus();
});

addTab("step", "Step");

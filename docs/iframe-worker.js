// Browsers start no worker for a page that is opened from a folder (file://), and the site's search is one.
// There its script runs in a hidden frame instead. Pages that come from a server are left alone.
if (window.location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      const script = new URL(url, window.location.href).href;
      this.ready = new Promise((resolve) => {
        this.frame.addEventListener("load", () => {
          const inside = this.frame.contentWindow;
          inside.postMessage = (data) => this.onmessage && this.onmessage({ data: structuredClone(data) });
          const element = inside.document.createElement("script");
          element.src = script;
          element.onload = () => resolve(inside);
          inside.document.body.append(element);
        });
      });
      const begin = () => document.body.append(this.frame);
      if (document.body) begin();
      else document.addEventListener("DOMContentLoaded", begin);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.onmessage({ data: structuredClone(data) }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}

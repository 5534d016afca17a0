// The theme searches in a Worker, which browsers do not give to a page that is opened from the disk. There it is a hidden
// frame of the page, so that nothing has to be loaded from elsewhere.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve) => (script.onload = resolve));
      inner.document.body.appendChild(script);
    }

    postMessage(data) {
      const message = new MessageEvent("message", { data });
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(message));
    }

    terminate() {
      this.frame.remove();
    }
  };
}

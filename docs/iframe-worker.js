/* The search runs in a worker, and a browser starts no worker for a page from disk. There, a hidden frame plays the worker. */
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      // The origin of a page from disk is none that a message could name, so messages go by hand.
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      // Firefox would replace the empty document of a new frame; one that was written to stays.
      const inner = frame.contentDocument;
      inner.open();
      inner.write(`<script src="${address}"></script>`);
      inner.close();
      this.ready = new Promise((loaded) => (inner.querySelector("script").onload = loaded));
    }

    async postMessage(data) {
      await this.ready;
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };

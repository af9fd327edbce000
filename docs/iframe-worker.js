// Browsers refuse workers to pages that are opened from the disk. There, a hidden frame runs the script of the search instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      this.loaded = this.load(url);
      this.inner.postMessage = (data) => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.inner.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve());
    }

    load(url) {
      return new Promise((done, failed) => {
        const page = this.inner.document;
        const script = page.createElement("script");
        Object.assign(script, { src: url, onload: done, onerror: failed });
        page.head.append(script);
      });
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}

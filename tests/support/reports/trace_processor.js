// Perfetto's own trace processor, compiled to WebAssembly for ui.perfetto.dev, as a filter: requests (a TraceProcessorRpcStream) on stdin,
// replies on stdout. Its bundle expects a web worker; it gets what it uses of one. The argument is the folder of the page's files.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
const say = (...words) => fs.writeSync(2, words.join(" ") + "\n");
const contentOf = (url) => fs.readFileSync(path.join(folder, path.basename(String(url))));

class XMLHttpRequest {
  open(method, url) {
    this.url = url;
  }
  send() {
    this.response = contentOf(this.url);
  }
}

const worker = vm.createContext({
  console: { debug: say, error: say, info: say, log: say, warn: say },
  location: { href: "http://localhost/engine_bundle.js" },
  WorkerGlobalScope: class {},
  XMLHttpRequest,
  fetch: async (url) => new Response(contentOf(url), { headers: { "Content-Type": "application/wasm" } }),
  ...{ clearInterval, clearTimeout, crypto, performance, queueMicrotask, setInterval, setTimeout, TextDecoder, TextEncoder, URL },
});
worker.self = worker;

function answer(bytes) {
  for (let at = 0; at < bytes.length; ) at += fs.writeSync(1, bytes, at);
}

vm.runInContext(contentOf("engine_bundle.js").toString(), worker);
const port = { postMessage: answer };
worker.onmessage({ data: port });
const Bytes = vm.runInContext("Uint8Array", worker);
const requests = new Bytes(fs.readFileSync(0));
setTimeout(() => port.onmessage({ data: requests }), 0); // it was loaded synchronously, and finishes its set-up in a microtask

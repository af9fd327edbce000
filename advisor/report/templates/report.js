"use strict";
// Conveniences of a page that is complete without them: copy buttons, and a filter over ranks.
(() => {
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const copy = async (box, text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      getSelection().selectAllChildren(box);
      return document.execCommand("copy");
    }
  };
  for (const box of document.querySelectorAll("[data-copy]")) {
    const code = box.querySelector("code");
    const name = box.dataset.copy;
    const button = make("button", { type: "button", className: "copy", textContent: "Copy", ariaLabel: "Copy " + name });
    button.addEventListener("click", async () => {
      const done = await copy(code, code.textContent + (name === "diff" ? "\n" : ""));
      button.textContent = done ? "Copied" : "Selected: press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    box.append(button);
  }
  const rows = [...document.querySelectorAll("[data-ranks]")];
  const ranks = new Set(rows.flatMap((row) => row.dataset.ranks.split(" ")));
  if (ranks.size < 2) return;
  const wanted = (text) => {
    const chosen = new Set();
    for (const [, first, last] of text.matchAll(/(\d+)(?:\s*[-–]\s*(\d+))?/g)) {
      for (let rank = +first; rank <= Math.min(+(last ?? first), +first + 65535); rank++) chosen.add(String(rank));
    }
    return chosen;
  };
  const show = (text) => {
    const chosen = wanted(text);
    for (const row of rows) row.hidden = chosen.size > 0 && !row.dataset.ranks.split(" ").some((rank) => chosen.has(rank));
    for (const fold of document.querySelectorAll("details.ranks")) if (chosen.size) fold.open = true;
  };
  for (const place of document.querySelectorAll(".rank-filter")) {
    const label = make("label", { textContent: "Only ranks " });
    const input = make("input", { type: "search", placeholder: "0-3, 7", inputMode: "text", size: 10 });
    input.addEventListener("input", () => {
      for (const other of document.querySelectorAll(".rank-filter input")) if (other !== input) other.value = input.value;
      show(input.value);
    });
    label.append(input);
    place.append(label);
  }
})();

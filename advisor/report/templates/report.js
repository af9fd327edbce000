"use strict";
// Conveniences of a page that is complete without them: copy buttons, a timeline to zoom into, and a filter over ranks.
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
  // The timeline: drag, wheel, keys and buttons zoom into it; the pointer shows the values of all rows at its time.
  const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
  const seconds = (s) => {
    if (s >= 100) return Math.floor(s / 60) + "m " + String(Math.round(s % 60)).padStart(2, "0") + "s";
    if (s >= 1) return digits(s) + " s";
    return s >= 1e-3 ? digits(s * 1e3) + " ms" : digits(s * 1e6) + " µs";
  };
  const clock = (s) => {
    const whole = Math.floor(s);
    const [hours, rest] = [Math.floor(whole / 3600), String(whole % 60).padStart(2, "0")];
    const minutes = Math.floor(whole / 60) % 60;
    return hours ? hours + ":" + String(minutes).padStart(2, "0") + ":" + rest : minutes + ":" + rest;
  };
  const numbers = (text) => (text ? text.split(",").map((part) => (part === "" ? null : +part)) : []);
  for (const chart of document.querySelectorAll(".zoomable")) {
    const end = +chart.dataset.end;
    const lanes = [...chart.querySelectorAll(".drawn")].map((drawn) => {
      const svg = drawn.querySelector("svg");
      const value = drawn.parentElement.querySelector(".value");
      const { from, slice, unit, values, late } = svg.dataset;
      return { drawn, svg, value, usual: value.textContent, from: +from, slice: +slice, unit, values: numbers(values), late: numbers(late) };
    });
    if (!lanes.length || !(end > 0)) continue;
    const least = Math.max(1e-4, Math.min(1, ...lanes.filter((lane) => lane.slice).map((lane) => 5 * lane.slice / end)));
    let [first, last] = [0, 1]; // the part shown, as shares of the run
    const bar = make("div", { className: "zoom" });
    const button = (text, label, act) => {
      const made = make("button", { type: "button", textContent: text, ariaLabel: label });
      made.addEventListener("click", act);
      bar.append(made);
      return made;
    };
    const show = (from, to) => {
      const width = Math.min(1, Math.max(least, to - from));
      first = Math.min(Math.max(0, (from + to - width) / 2), 1 - width);
      last = first + width;
      for (const { svg } of lanes) {
        svg.style.width = 100 / width + "%";
        svg.style.marginLeft = -100 * first / width + "%";
      }
      for (const axis of chart.querySelectorAll(".x-axis")) {
        [...axis.children].forEach((tick, i, all) => {
          const at = (first + width * i / (all.length - 1)) * end;
          tick.textContent = width * end < 20 ? at.toFixed(1) + " s" : clock(at);
        });
      }
      whole.disabled = width >= 1;
      said.textContent = width < 1 ? clock(first * end) + " to " + clock(last * end) : "";
    };
    const zoom = (factor, at = (first + last) / 2) => show(at - (at - first) * factor, at + (last - at) * factor);
    const move = (share) => show(first + share * (last - first), last + share * (last - first));
    button("+", "Zoom in", () => zoom(0.5));
    button("−", "Zoom out", () => zoom(2));
    button("←", "Earlier", () => move(-0.25));
    button("→", "Later", () => move(0.25));
    const whole = button("Reset", "Show the whole run", () => show(0, 1));
    const said = make("output", {});
    bar.append(said, make("span", { textContent: "Drag over a part to zoom in, Ctrl + wheel to zoom." }));
    chart.prepend(bar);
    chart.classList.add("is-live");
    chart.tabIndex = 0;
    chart.setAttribute("role", "group");
    chart.setAttribute("aria-label", "Timeline: plus and minus zoom, arrows move, 0 shows the whole run");
    const keys = {
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => show(0, 1), Escape: () => show(0, 1),
      ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25),
    };
    chart.addEventListener("keydown", (event) => {
      if (event.target !== chart || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    const place = (drawn, event) => {
      const box = drawn.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    const line = () => make("i", { className: "cursor", hidden: true });
    for (const lane of lanes) lane.drawn.append(lane.cursor = line());
    const told = (lane, at) => {
      const slot = Math.floor((at * end - lane.from) / lane.slice);
      const value = lane.values[slot];
      if (value == null) return null;
      if (lane.unit !== "s") return digits(value) + " " + lane.unit;
      return seconds(value) + (lane.late[slot] ? ", " + seconds(lane.late[slot]) + " late" : "");
    };
    const point = (share) => {
      const at = first + share * (last - first);
      said.textContent = "at " + (end < 60 ? (at * end).toFixed(1) + " s" : clock(at * end));
      for (const lane of lanes) {
        lane.cursor.hidden = false;
        lane.cursor.style.left = 100 * share + "%";
        if (lane.values.length) lane.value.textContent = told(lane, at) ?? "–";
      }
    };
    const leave = () => {
      for (const lane of lanes) {
        lane.cursor.hidden = true;
        lane.value.textContent = lane.usual;
      }
      show(first, last);
    };
    for (const { drawn } of lanes) {
      let begun = null;
      const chosen = make("i", { className: "chosen", hidden: true });
      drawn.append(chosen);
      const stop = () => { begun = null; chosen.hidden = true; };
      drawn.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        begun = place(drawn, event);
        if (event.isTrusted) drawn.setPointerCapture(event.pointerId); // a script's event has no pointer to capture
      });
      drawn.addEventListener("pointermove", (event) => {
        const now = place(drawn, event);
        point(now);
        if (begun === null) return;
        chosen.hidden = false;
        chosen.style.left = 100 * Math.min(begun, now) + "%";
        chosen.style.width = 100 * Math.abs(now - begun) + "%";
      });
      drawn.addEventListener("pointerup", (event) => {
        if (begun === null) return;
        const [low, high] = [begun, place(drawn, event)].sort((a, b) => a - b).map((share) => first + share * (last - first));
        const far = (high - low) > 0.01 * (last - first);
        stop();
        if (far) show(low, high);
      });
      drawn.addEventListener("pointercancel", stop);
      drawn.addEventListener("pointerleave", leave);
      drawn.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && document.activeElement !== chart) return;
        event.preventDefault();
        zoom(event.deltaY < 0 ? 0.8 : 1.25, first + place(drawn, event) * (last - first));
      }, { passive: false });
    }
    show(0, 1);
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

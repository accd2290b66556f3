"use strict";
(() => {
  const run = JSON.parse(document.getElementById("data").textContent).timeline;
  if (!run) return;
  const { events, turns, lanes, names, kinds } = run;
  const byId = (id) => document.getElementById(id);
  const LANE = 18, TRACK = 14, GAP = 3, AXIS = 20, HEIGHT = 130, S = 1e9;
  const view = { from: run.start_ns, to: Math.max(run.end_ns, run.start_ns + 1) };
  const whole = { ...view };
  let chosen = -1;
  let width = 800;

  // ---- numbers for people

  function time(ns) {
    const s = ns / S;
    if (s > 0 && s < 0.9995) return s < 1e-3 ? `${Number((s * 1e6).toPrecision(3))} us` : `${Number((s * 1e3).toPrecision(3))} ms`;
    if (s < 9.995) return `${s.toFixed(2)} s`;
    if (s < 59.95) return `${s.toFixed(1)} s`;
    const whole = Math.round(s), minutes = Math.floor(whole / 60);
    if (s < 3599.5) return whole % 60 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
    return `${Math.floor(Math.round(s / 60) / 60)} h ${Math.round(s / 60) % 60} min`;
  }
  const round = (text) => text.replace(/\.0+ /, " ").replace(/ 0 (min|s)$/, "").replace(/^0 s$/, "0");
  const count = (n) => n.toLocaleString("en");
  const short = (n) => (n >= 1e6 ? `${Number((n / 1e6).toPrecision(3))}M` : n >= 1e3 ? `${Math.round(n / 1e3)}k` : `${n}`);

  // ---- the run: events by row, turns by event

  const tracks = lanes.map(() => 1);
  events.lane.forEach((lane, i) => { tracks[lane] = Math.max(tracks[lane], events.track[i] + 1); });
  const tops = [];
  let bottom = 0;
  tracks.forEach((n) => { tops.push(bottom); bottom += LANE + n * (TRACK + GAP); });
  const eventOf = new Array(turns.index.length).fill(-1);
  events.turn.forEach((turn, i) => { if (turn >= 0) eventOf[turn] = i; });
  const order = [...eventOf.keys()].sort((a, b) => turns.index[a] - turns.index[b]);
  const ttft = (t) => turns.network_ns[t] + turns.queue_ns[t] + turns.prefill_ns[t] + turns.transfer_ns[t];
  const end = (t) => turns.start_ns[t] + ttft(t) + turns.decode_ns[t];

  // ---- drawing

  const x = (ns) => ((ns - view.from) / (view.to - view.from)) * width;
  const seen = (from, to) => to >= view.from && from <= view.to;

  function add(parent, name, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }
  function rect(parent, kind, from, to, y, height) {
    const left = Math.max(x(from), -2), right = Math.min(x(to), width + 2);
    if (right < 0 || left > width || to <= from) return;
    add(parent, "rect", { class: kind, x: left.toFixed(2), y, width: Math.max(right - left, 0.4).toFixed(2), height });
  }
  function cleared(id, height) {
    const svg = byId(id);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    return svg;
  }
  function ticks() {
    const steps = [1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
    const room = Math.max(Math.floor(width / 90), 2), span = (view.to - view.from) / S;
    const step = (steps.find((s) => span / s <= room) || 86400 * Math.ceil(span / room / 86400)) * S;
    const found = [];
    for (let at = Math.ceil((view.from - run.start_ns) / step) * step; at + run.start_ns <= view.to; at += step) found.push(at);
    return found;
  }
  function gridLines(svg, height, labels) {
    for (const at of ticks()) {
      const place = x(at + run.start_ns).toFixed(1);
      add(svg, "line", { class: "grid", x1: place, x2: place, y1: 0, y2: height });
      if (labels) add(svg, "text", { x: Math.min(place, width - 60), y: height + 13 }, round(time(at)));
    }
  }

  function drawLanes() {
    const svg = cleared("lanes", bottom + AXIS);
    gridLines(svg, bottom, true);
    lanes.forEach((lane, i) => add(svg, "text", { class: "lane", x: 2, y: tops[i] + 13 }, lane.name));
    events.start_ns.forEach((from, i) => {
      if (!seen(from, events.end_ns[i])) return;
      const group = add(svg, "g", events.critical[i] ? { "data-event": i } : { "data-event": i, class: "off" });
      const y = row(i);
      if (events.turn[i] >= 0) drawCall(group, events.turn[i], y);
      else rect(group, `p-${kinds[events.kind[i]]}`, from, events.end_ns[i], y, TRACK);
      add(group, "title", {}, `${label(i)}: ${time(events.end_ns[i] - from)}`);
    });
    if (chosen >= 0) {
      const left = x(events.start_ns[chosen]), right = x(events.end_ns[chosen]);
      add(svg, "rect", { class: "chosen", x: left - 2, y: row(chosen) - 2, width: Math.max(right - left, 1) + 4, height: TRACK + 4 });
    }
  }
  const row = (i) => tops[events.lane[i]] + LANE + events.track[i] * (TRACK + GAP);

  function drawCall(group, t, y) {
    let at = turns.start_ns[t];
    const parts = [["network", "network_ns"], ["queue", "queue_ns"], ["prefill", "prefill_ns"], ["kv_transfer", "transfer_ns"], ["decode", "decode_ns"]];
    for (const [part, key] of parts) {
      const kind = turns.compaction[t] && part !== "network" ? "compaction" : part;
      rect(group, `p-${kind}`, at, at + turns[key][t], y, TRACK);
      at += turns[key][t];
    }
  }

  function drawContext() {
    const svg = cleared("context", HEIGHT + AXIS);
    const most = Math.max(1, ...turns.prompt, ...turns.context_after) * 1.08;
    const y = (tokens) => HEIGHT - (tokens / most) * HEIGHT;
    gridLines(svg, HEIGHT, true);
    lanes.forEach((_, lane) => {
      const own = order.filter((t) => events.lane[eventOf[t]] === lane);
      let path = "";
      for (const t of own) {
        path += `${path ? "L" : "M"}${x(turns.start_ns[t]).toFixed(1)} ${y(turns.prompt[t]).toFixed(1)}`;
        path += `L${x(end(t)).toFixed(1)} ${y(turns.context_after[t]).toFixed(1)}`;
        if (!seen(turns.start_ns[t], end(t))) continue;
        const top = y(turns.prompt[t]), fresh = y(turns.cached[t]) - top;
        const left = x(turns.start_ns[t]), wide = Math.max(x(end(t)) - left, 1.5);
        add(svg, "rect", { class: "fresh", x: left, y: top, width: wide, height: Math.max(fresh, 0) });
        if (turns.compaction[t]) add(svg, "line", { class: "cut", x1: x(end(t)), x2: x(end(t)), y1: 0, y2: HEIGHT });
      }
      if (path) add(svg, "path", { class: lane ? "line sub" : "line", d: path });
    });
    levels(svg, most, y, short);
    cursor(svg);
  }
  function levels(svg, most, y, text) {
    const rough = most / 3, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough);
    for (let at = step; at < most; at += step) {
      add(svg, "line", { class: "grid", x1: 0, x2: width, y1: y(at), y2: y(at) });
      add(svg, "text", { x: 2, y: y(at) < 14 ? y(at) + 11 : y(at) - 3 }, text(at));
    }
  }

  function drawLatency() {
    const svg = cleared("latency", HEIGHT + AXIS);
    const shown = order.filter((t) => seen(turns.start_ns[t], end(t)));
    const most = Math.max(1e6, ...shown.map((t) => ttft(t) + turns.decode_ns[t])) * 1.08;
    const y = (ns) => HEIGHT - (ns / most) * HEIGHT;
    const wide = Math.min(Math.max((width / Math.max(shown.length, 1)) * 0.7, 1), 7);
    gridLines(svg, HEIGHT, true);
    for (const t of shown) {
      const left = Math.min(Math.max(x(turns.start_ns[t]), 0), width - wide);
      const first = ttft(t), all = first + turns.decode_ns[t];
      add(svg, "rect", { class: "p-prefill", x: left, y: y(first), width: wide, height: HEIGHT - y(first) });
      add(svg, "rect", { class: turns.compaction[t] ? "p-compaction" : "p-decode", x: left, y: y(all), width: wide, height: y(first) - y(all) });
    }
    levels(svg, most / S, (s) => y(s * S), (s) => round(time(s * S)));
    cursor(svg);
  }
  function cursor(svg) {
    if (chosen < 0 || events.turn[chosen] < 0) return;
    const at = x(events.start_ns[chosen]);
    add(svg, "line", { class: "chosen", x1: at, x2: at, y1: 0, y2: HEIGHT });
  }
  function draw() {
    drawLanes();
    drawContext();
    drawLatency();
  }

  // ---- the chosen turn

  function label(i) {
    const t = events.turn[i];
    if (t < 0) return kinds[events.kind[i]] === "human" ? "Waiting for you" : names[events.name[i]];
    return `Turn ${turns.index[t] + 1}${turns.compaction[t] ? " (compaction)" : ""}`;
  }
  function facts(i) {
    const t = events.turn[i], length = events.end_ns[i] - events.start_ns[i];
    const found = [["starts after", time(events.start_ns[i] - run.start_ns)], ["takes", time(length)]];
    if (t < 0) return found;
    for (const [name, key] of [["network", "network_ns"], ["queue", "queue_ns"], ["prefill", "prefill_ns"], ["KV transfer", "transfer_ns"], ["decode", "decode_ns"]]) {
      if (turns[key][t]) found.push([name, time(turns[key][t])]);
    }
    found.push(["time to first token", time(ttft(t))]);
    if (turns.decode_ns[t]) found.push(["decode speed", `${Math.round((turns.output[t] / turns.decode_ns[t]) * S).toLocaleString("en")} tok/s`]);
    found.push(["prompt", `${count(turns.prompt[t])} tokens`], ["of it cached", count(turns.cached[t])]);
    found.push(["written", `${count(turns.output[t])} tokens`]);
    if (turns.thinking[t]) found.push(["of it thinking", count(turns.thinking[t])]);
    found.push(["context after", `${count(turns.context_after[t])} tokens`]);
    return found;
  }
  function choose(i) {
    chosen = i;
    const panel = byId("facts"), title = document.createElement("h3"), list = document.createElement("dl");
    title.textContent = `${label(i)} · ${lanes[events.lane[i]].name}`;
    for (const [name, value] of facts(i)) {
      const pair = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = name;
      dd.textContent = value;
      pair.append(dt, dd);
      list.append(pair);
    }
    panel.replaceChildren(title, list);
    panel.dataset.turn = events.turn[i] < 0 ? "" : turns.index[events.turn[i]];
    document.querySelectorAll("#turns tr[data-turn]").forEach((tr) => {
      tr.setAttribute("aria-selected", String(Number(tr.dataset.turn) === events.turn[i]));
    });
    reveal(i);
    draw();
  }
  function reveal(i) {
    const span = view.to - view.from;
    if (events.end_ns[i] >= view.from && events.start_ns[i] <= view.to) return;
    show((events.start_ns[i] + events.end_ns[i] - span) / 2, span);
  }
  function step(by) {
    const t = chosen < 0 ? -1 : events.turn[chosen];
    let place = order.indexOf(t) + by;
    if (t < 0 && chosen >= 0) place = order.findIndex((o) => turns.start_ns[o] >= events.start_ns[chosen]) - (by < 0 ? 1 : 0);
    if (order.length) choose(eventOf[order[Math.min(Math.max(place, 0), order.length - 1)]]);
  }

  // ---- zoom and move

  function show(from, span) {
    const least = Math.min(1e6, whole.to - whole.from);
    span = Math.min(Math.max(span, least), whole.to - whole.from);
    view.from = Math.min(Math.max(from, whole.from), whole.to - span);
    view.to = view.from + span;
  }
  function zoom(factor, at = 0.5) {
    const span = view.to - view.from, centre = chosen >= 0 && at === 0.5 ? events.start_ns[chosen] : view.from + span * at;
    const share = chosen >= 0 && at === 0.5 ? 0.5 : at;
    show(centre - span * factor * share, span * factor);
    draw();
  }
  function fit() {
    Object.assign(view, whole);
    draw();
  }
  function timeAt(svg, clientX) {
    const box = svg.getBoundingClientRect();
    return view.from + ((clientX - box.left) / box.width) * (view.to - view.from);
  }
  function near(svg, event) {
    const at = timeAt(svg, event.clientX), box = svg.getBoundingClientRect();
    const y = svg.id === "lanes" ? (event.clientY - box.top) * ((bottom + AXIS) / box.height) : null;
    let best = -1, least = Infinity;
    events.start_ns.forEach((from, i) => {
      const off = Math.max(from - at, at - events.end_ns[i], 0);
      const fits = y === null ? events.turn[i] >= 0 : y >= row(i) - GAP && y < row(i) + TRACK + GAP;
      if (fits && off < least) { best = i; least = off; }
    });
    return best;
  }
  for (const id of ["lanes", "context", "latency"]) {
    const svg = byId(id);
    let held = null;
    svg.addEventListener("pointerdown", (event) => { held = { x: event.clientX, from: view.from, moved: false }; });
    svg.addEventListener("pointermove", (event) => {
      if (!held || !(event.buttons & 1)) return;
      const by = ((held.x - event.clientX) / svg.getBoundingClientRect().width) * (view.to - view.from);
      if (Math.abs(held.x - event.clientX) > 4) held.moved = true;
      if (held.moved) { show(held.from + by, view.to - view.from); draw(); }
    });
    svg.addEventListener("click", (event) => {
      const found = held && held.moved ? -1 : near(svg, event);
      if (found >= 0) choose(found);
      held = null;
    });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width + 1e-9);
    }, { passive: false });
  }
  const keys = {
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: fit,
    Home: () => order.length && choose(eventOf[order[0]]), End: () => order.length && choose(eventOf[order[order.length - 1]]),
  };
  byId("charts").addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  byId("previous").onclick = () => step(-1);
  byId("next").onclick = () => step(1);
  byId("closer").onclick = () => zoom(0.5);
  byId("wider").onclick = () => zoom(2);
  byId("whole").onclick = fit;

  // ---- the table, made when it is opened

  function fillTable() {
    const table = document.createElement("table"), scroll = document.createElement("div");
    table.className = "numbers";
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    line(table.createTHead(), "th", ["turn", "agent", "starts after", "first token", "decode", "prompt", "cached", "written", "context"]);
    const body = table.createTBody();
    for (const t of order) {
      const when = [turns.start_ns[t] - run.start_ns, ttft(t), turns.decode_ns[t]].map(time);
      const tokens = [turns.prompt[t], turns.cached[t], turns.output[t], turns.context_after[t]].map(count);
      const tr = line(body, "td", ["", lanes[events.lane[eventOf[t]]].name, ...when, ...tokens]);
      const button = document.createElement("button");
      button.className = "plain";
      button.textContent = turns.index[t] + 1;
      button.onclick = () => choose(eventOf[t]);
      tr.cells[0].append(button);
      tr.dataset.turn = t;
    }
    scroll.append(table);
    byId("turns").append(scroll);
  }
  function line(part, kind, cells) {
    const tr = part.insertRow();
    for (const text of cells) {
      const cell = document.createElement(kind);
      cell.textContent = text;
      tr.append(cell);
    }
    return tr;
  }
  byId("turns").addEventListener("toggle", fillTable, { once: true });

  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now && now !== width) { width = now; draw(); }
  }).observe(byId("charts"));
  addEventListener("beforeprint", fit);
  width = byId("charts").clientWidth || width;
  draw();
})();

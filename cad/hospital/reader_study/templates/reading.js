"use strict";
(() => {
  const plan = JSON.parse(document.getElementById("plan").textContent);
  const key = `${plan.study} ${plan.reader} ${plan.session}`;
  const at = (name) => document.getElementById(name);
  let state = { at: 0, scores: {}, notes: {}, ms: {}, outlines: {}, finished: null };
  let kept = true; // whether this browser keeps what is scored
  let since = null;
  let current = 0;
  let seen = false; // whether the case is on the screen: what was not seen is not scored

  // IndexedDB is on the disk before a score counts as kept; localStorage may be a few seconds late
  // when a browser is killed, and stands in where there is no IndexedDB.
  const store = {
    async open() {
      this.db = await new Promise((done) => {
        try {
          const request = indexedDB.open("cad reading", 1);
          request.onupgradeneeded = () => request.result.createObjectStore("states");
          request.onsuccess = () => done(request.result);
          request.onerror = request.onblocked = () => done(null);
        } catch { done(null); }
      });
    },
    async get(name) {
      const found = this.db && await new Promise((done) => {
        const request = this.db.transaction("states").objectStore("states").get(name);
        request.onsuccess = () => done(request.result);
        request.onerror = () => done(null);
      });
      if (found) return found;
      try { return JSON.parse(localStorage.getItem("cad reading " + name)); } catch { return null; }
    },
    async set(name, value) {
      let whole = false;
      if (this.db) whole = await new Promise((done) => {
        try {
          const write = this.db.transaction("states", "readwrite", { durability: "strict" });
          write.objectStore("states").put(value, name);
          write.oncomplete = () => done(true);
          write.onerror = write.onabort = () => done(false);
        } catch { done(false); }
      });
      try { localStorage.setItem("cad reading " + name, JSON.stringify(value)); return true; } catch { return whole; }
    },
  };

  async function save() {
    clock();
    kept = await store.set(key, state);
    if (!kept) alarm("This browser keeps nothing: scores are lost when it closes. Export them before, or use another browser.");
  }

  function alarm(text) { at("alarm").textContent = text; at("alarm").hidden = false; }

  // Time counts while the case is on the screen and the page is in front.
  function clock() {
    const now = performance.now();
    const item = plan.cases[state.at];
    if (since !== null && item) state.ms[item.code] = (state.ms[item.code] || 0) + Math.round(now - since);
    since = document.visibilityState === "visible" ? now : null;
  }
  document.addEventListener("visibilitychange", clock);

  const waiting = {};
  window.cadCase = (code, data) => waiting[code](data);
  function load(code) {
    return new Promise((done, fail) => {
      waiting[code] = done;
      const script = document.createElement("script");
      script.src = `cases/${code}.js`;
      script.onerror = () => fail(new Error(`cases/${code}.js cannot be read`));
      script.onload = () => script.remove();
      document.head.append(script);
    });
  }

  const scored = (item) => item.rois.filter((roi) => (state.scores[item.code] || {})[roi]).length;
  const open = () => plan.cases.findIndex((item) => scored(item) < item.rois.length);

  let viewer = null;
  async function show(n) {
    if (n < 0 || n >= plan.cases.length) return;
    await save();
    state.at = n;
    since = null;
    seen = false;
    viewer = null;
    at("slot").replaceChildren(); // never one case's images under another's name
    const item = plan.cases[n];
    current = Math.max(item.rois.findIndex((roi) => !(state.scores[item.code] || {})[roi]), 0);
    at("note").value = state.notes[item.code] || "";
    draw();
    let data;
    try { data = await load(item.code); } catch (error) { alarm(error.message); return; }
    if (plan.cases[state.at] !== item) return;
    const root = at("case").content.firstElementChild.cloneNode(true);
    root.querySelector(".slice").max = data.n;
    at("slot").replaceChildren(root);
    viewer = new window.CadViewer(root, { ...data, reading: true });
    await viewer.start();
    if (plan.outlines) pen(item, data);
    mark();
    since = performance.now();
    seen = true;
    root.dataset.case = item.code;
    root.focus({ preventScroll: true });
  }

  const marked = () => viewer && viewer.data.regions.find((r) => r.id === plan.cases[state.at].rois[current]);

  function mark() {
    draw();
    const region = marked();
    if (region) viewer.visit(region);
    if (viewer && viewer.pen) viewer.pen.say();
  }

  // Outlines are corrected where the reader is alone: what the tool said is no opinion of theirs.
  function pen(item, data) {
    viewer.root.querySelector(".pen").hidden = item.condition !== "alone";
    if (item.condition !== "alone") return;
    const tool = new window.CadPen(viewer, {
      region: marked,
      least: plan.least_voxels,
      changed: (region, runs) => {
        const drawn = (state.outlines[item.code] ||= {});
        if (runs) drawn[region.id] = { ...data.drawn_on, runs };
        else delete drawn[region.id];
        save();
      },
    });
    const drawn = Object.entries(state.outlines[item.code] || {});
    tool.load(drawn.map(([roi, { runs }]) => [data.regions.find((r) => r.id === roi).label, runs]));
  }

  function draw() {
    const item = plan.cases[state.at];
    const total = plan.cases.reduce((n, c) => n + c.rois.length, 0);
    const done = plan.cases.reduce((n, c) => n + scored(c), 0);
    at("progress").textContent = `case ${state.at + 1} of ${plan.cases.length} (${item.code}) · ${done} of ${total} regions scored`;
    at("done").hidden = done < total;
    at("ask").hidden = false;
    const held = document.activeElement && document.activeElement.getAttribute("aria-label");
    at("rois").replaceChildren(...item.rois.map((roi, k) => {
      const box = document.createElement("div");
      box.className = "roi" + (k === current ? " current" : "");
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", `Region ${roi}`);
      const name = document.createElement("button");
      name.type = "button";
      name.className = "name";
      name.textContent = roi;
      name.setAttribute("aria-label", `Mark region ${roi}`);
      name.setAttribute("aria-pressed", String(k === current));
      name.addEventListener("click", () => { current = k; mark(); });
      box.append(name);
      for (let n = 1; n <= 5; n++) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = n;
        button.setAttribute("aria-label", `Region ${roi}: ${n}`);
        button.setAttribute("aria-pressed", String((state.scores[item.code] || {})[roi] === n));
        button.addEventListener("click", () => { current = k; score(n); });
        box.append(button, " ");
      }
      if (item.tool) {
        const tool = document.createElement("span");
        tool.className = "tool";
        const percent = 100 * item.tool[roi];
        tool.textContent = `tool ${percent < 0.5 ? "<1" : percent >= 99.5 ? ">99" : percent.toFixed(0)}%`;
        box.append(tool);
      }
      return box;
    }));
    // What had the focus was made anew.
    if (held) for (const button of at("rois").querySelectorAll("button")) if (button.getAttribute("aria-label") === held) button.focus();
  }

  async function score(n) {
    if (!seen) return;
    const item = plan.cases[state.at];
    (state.scores[item.code] ||= {})[item.rois[current]] = n;
    if (open() < 0 && !state.finished) state.finished = new Date().toISOString();
    // On to the next region without a score; after the last one Enter goes on.
    const next = item.rois.findIndex((roi) => !state.scores[item.code][roi]);
    if (next >= 0) { current = next; mark(); } else draw();
    await save();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || at("ask").hidden) return;
    if (event.target === at("note") || !at("keys").checked) return;
    const item = plan.cases[state.at];
    const button = event.target.closest && event.target.closest("button, input, select, a");
    if (/^[1-5]$/.test(event.key) && !(button && button.tagName !== "BUTTON" && button.type !== "range")) score(Number(event.key));
    else if (event.key === "Tab" && !button && item.rois.length > 1 && !event.shiftKey && current < item.rois.length - 1) { current += 1; mark(); }
    else if (event.key === "Enter" && !button) show(state.at + 1);
    else if (event.key === "Backspace" && !button) show(state.at - 1);
    else return;
    event.preventDefault();
  });
  at("next").addEventListener("click", () => show(state.at + 1));
  at("previous").addEventListener("click", () => show(state.at - 1));
  at("note").addEventListener("input", () => { state.notes[plan.cases[state.at].code] = at("note").value; save(); });

  function crc32(bytes) {
    let crc = ~0;
    for (const byte of bytes) {
      crc ^= byte;
      for (let k = 0; k < 8; k++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return (~crc >>> 0).toString(16).padStart(8, "0");
  }

  function exported() {
    const readings = [];
    for (const item of plan.cases)
      for (const roi of item.rois) {
        const given = (state.scores[item.code] || {})[roi];
        if (given) readings.push({ case: item.code, roi, score: given, condition: item.condition, milliseconds: state.ms[item.code] || 0, note: state.notes[item.code] || "" });
      }
    const { format, study, reader, session, scale } = plan;
    const outlines = plan.cases.flatMap((item) => item.rois
      .filter((roi) => (state.outlines[item.code] || {})[roi])
      .map((roi) => ({ case: item.code, roi, ...state.outlines[item.code][roi] })));
    const line = JSON.stringify({ format, study, reader, session, scale, finished: state.finished, readings, ...(plan.outlines ? { outlines } : {}) });
    return `${line}\n${JSON.stringify({ crc32: crc32(new TextEncoder().encode(line)) })}\n`;
  }
  window.cadExport = exported;

  at("export").addEventListener("click", async () => {
    await save();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([exported()], { type: "application/octet-stream" }));
    link.download = `${plan.reader}-session-${plan.session}.jsonl`;
    link.click();
    at("exported").textContent = link.download;
  });
  window.addEventListener("beforeunload", (event) => { if (!kept && Object.keys({ ...state.scores, ...state.outlines }).length) event.preventDefault(); });

  async function start() {
    await store.open();
    state = { ...state, ...(await store.get(key) || {}) };
    const first = plan.session > 1 ? await store.get(`${plan.study} ${plan.reader} ${plan.session - 1}`) : null;
    const ready = first && first.finished ? Date.parse(first.finished) + plan.wash_out * 864e5 : null;
    const begin = () => { at("wait").hidden = true; show(open() < 0 ? state.at : open()); };
    if (plan.session > 1 && !(ready && ready <= Date.now())) {
      at("wait-text").textContent = ready
        ? `This session opens ${plan.wash_out} days after the first one was finished: on ${new Date(ready).toISOString().slice(0, 10)}.`
        : `This session follows ${plan.wash_out} days after the first one; this browser does not know it as finished.`;
      at("wait").hidden = false;
      at("open").addEventListener("click", begin);
    } else begin();
  }
  start();
})();

"use strict";
(() => {
  // A region's colour and sign by its decision; the sign says it without the colour.
  const STYLE = {
    malignant: { colour: "#f08a4b", sign: "\u25a0 " },
    refer: { colour: "#e8cf66", sign: "\u25c7 " },
    benign: { colour: "#6db3e8", sign: "\u25cb " },
    "": { colour: "#d5dadf", sign: "" },
  };
  // Cividis-like ramp: readable by colour-blind people and monotone in brightness.
  const RAMP = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [253, 231, 55]];
  const PANELS = [["t2w", "T2"], ["adc", "ADC"], ["enhancement", "DCE enhancement"]];

  function ramp(v) {
    const at = Math.min(Math.max(v, 0), 1) * (RAMP.length - 1);
    const i = Math.min(Math.floor(at), RAMP.length - 2);
    return RAMP[i].map((c, k) => c + (at - i) * (RAMP[i + 1][k] - c));
  }

  function load(source) {
    return new Promise((done, fail) => {
      const image = new Image();
      image.onload = () => {
        const canvas = document.createElement("canvas");
        canvas.width = image.width;
        canvas.height = image.height;
        const context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(image, 0, 0);
        const { data, width } = context.getImageData(0, 0, image.width, image.height);
        const grey = new Uint8Array(data.length / 4);
        for (let i = 0; i < grey.length; i++) grey[i] = data[4 * i];
        done({ grey, width });
      };
      image.onerror = () => fail(new Error("a slice image cannot be read"));
      image.src = source;
    });
  }

  class Viewer {
    constructor(root, data) {
      this.root = root;
      this.data = data;
      this.layers = Object.fromEntries(data.layers.map((l) => [l.key, { ...l, shown: [...l.window] }]));
      this.z = 0;
      this.cursor = null;
      this.tool = "window";
      this.view = { zoom: 1, x: 0.5, y: 0.5 }; // middle of what is shown, as a share of the slice
      this.ruler = null;
      this.marked = null; // the region that links, buttons and scores are about; drawn unlike the others
      this.pen = null; // corrects outlines, where a page has one
      this.engaged = false; // whether the wheel is the viewer's; it is the page's until a click
      this.find = (name) => root.querySelector("." + name);
      this.buffer = document.createElement("canvas");
      this.buffer.width = data.width;
      this.buffer.height = data.height;
    }

    async start() {
      const { data } = this;
      const sprites = await Promise.all([...data.layers.map((l) => load(l.source)), load(data.labels)]);
      this.labels = sprites.pop();
      data.layers.forEach((l, i) => { this.layers[l.key].sprite = sprites[i]; });
      this.centres();
      this.controls();
      this.panels = PANELS.map(([key, name]) => this.panel(key, name));
      this.active = this.panels.find((p) => this.layers[p.key]) || this.panels[0];
      const first = data.regions.find((r) => this.centre.has(r.label));
      this.go(Math.floor(data.n / 2));
      if (first) this.visit(first);
      new ResizeObserver(() => this.draw()).observe(this.find("panels"));
      document.addEventListener("cad-reveal", () => { this.named(); this.draw(); });
      this.root.dataset.ready = Math.round(performance.now()) + " ms";
    }

    at(sprite, z, y, x) {
      const { columns, width, height } = this.data;
      const row = Math.floor(z / columns) * height + y;
      return sprite.grey[row * sprite.width + (z % columns) * width + x];
    }

    // Where every region is largest, and its middle there.
    centres() {
      const { n, height, width } = this.data;
      this.centre = new Map();
      for (let z = 0; z < n; z++) {
        const here = new Map();
        for (let y = 0; y < height; y++)
          for (let x = 0; x < width; x++) {
            const label = this.at(this.labels, z, y, x);
            if (!label) continue;
            const sum = here.get(label) || { z, n: 0, x: 0, y: 0 };
            sum.n++; sum.x += x; sum.y += y;
            here.set(label, sum);
          }
        for (const [label, sum] of here)
          if (!this.centre.has(label) || sum.n > this.centre.get(label).n) this.centre.set(label, sum);
      }
    }

    controls() {
      const { root, data } = this;
      const slider = this.find("slice");
      slider.addEventListener("input", () => this.go(Number(slider.value) - 1));
      for (const name of ["outlines", "map"]) this.find(name).addEventListener("change", () => this.draw());
      const which = this.find("which");
      const maps = data.layers.filter((l) => l.key !== "t2w");
      for (const l of [...maps].reverse()) which.append(new Option(l.title, l.key));
      const hide = () => { for (const o of which.options) o.hidden = o.disabled = this.blinded && o.value === "probability"; };
      hide();
      if (this.blinded && this.layers.adc) which.value = "adc";
      if (this.layers.ktrans && (this.blinded || !this.layers.probability)) which.value = "ktrans";
      which.addEventListener("change", () => { this.find("map").checked = true; this.draw(); });
      if (!maps.length) for (const name of ["map", "which"]) this.find(name).disabled = true;
      this.find("reset").addEventListener("click", () => this.reset());
      data.regions.forEach((r) => {
        if (!this.centre.has(r.label)) return;
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = r.id;
        button.addEventListener("click", () => this.visit(r));
        this.find("goto").append(button);
      });
      this.named();
      for (const button of root.querySelectorAll("[data-tool]"))
        button.addEventListener("click", () => this.choose(button.dataset.tool));
      this.find("in").addEventListener("click", () => this.zoom(1.25));
      this.find("out").addEventListener("click", () => this.zoom(0.8));
      document.addEventListener("pointerdown", (event) => {
        if (!root.contains(event.target)) this.engage(false);
      });
      root.addEventListener("keydown", (event) => this.key(event));
    }

    // While the page is blinded neither a tooltip nor a colour says what the tool found.
    get blinded() { return document.body.classList.contains("blinded"); }

    named() {
      const buttons = this.find("goto").querySelectorAll("button");
      const placed = this.data.regions.filter((r) => this.centre.has(r.label));
      placed.forEach((r, i) => { buttons[i].title = `Go to region ${r.id}` + (this.blinded ? "" : `, ${r.text}`); });
    }

    // Go to the slice on which a region is largest, and mark it.
    visit(region) {
      this.marked = region;
      if (this.centre.has(region.label)) this.go(this.centre.get(region.label).z);
      else this.draw();
    }

    choose(tool) {
      this.tool = tool;
      for (const button of this.root.querySelectorAll("[data-tool]"))
        button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
      this.root.classList.toggle("penned", Boolean(this.pen && this.pen.on));
    }

    engage(on) {
      this.engaged = on;
      this.root.classList.toggle("engaged", on);
    }

    zoom(factor, x = this.view.x, y = this.view.y) {
      const { view } = this;
      const to = Math.min(Math.max(view.zoom * factor, 1), 8);
      // What is under the pointer stays there.
      view.x = x + (view.x - x) * (view.zoom / to);
      view.y = y + (view.y - y) * (view.zoom / to);
      view.zoom = to;
      this.pan(0, 0);
    }

    pan(dx, dy) {
      const { view } = this;
      const half = 0.5 / view.zoom;
      view.x = Math.min(Math.max(view.x + dx, half), 1 - half);
      view.y = Math.min(Math.max(view.y + dy, half), 1 - half);
      this.find("zoom").textContent = `${Number(view.zoom.toFixed(1))}×`;
      this.draw();
    }

    // From a point of a panel to a share of the slice.
    place(canvas, event) {
      const box = canvas.getBoundingClientRect();
      const at = (v, low, size, middle) => middle + ((v - low) / size - 0.5) / this.view.zoom;
      return [at(event.clientX, box.left, box.width, this.view.x), at(event.clientY, box.top, box.height, this.view.y)];
    }

    length() {
      const [[ax, ay], [bx, by]] = this.ruler;
      const { width, height, spacing } = this.data;
      return Math.hypot((bx - ax) * width * spacing[0], (by - ay) * height * spacing[1]);
    }

    panel(key, name) {
      const figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      figure.append(caption);
      this.find("panels").append(figure);
      const layer = this.layers[key];
      if (!layer) {
        caption.textContent = name;
        const absent = document.createElement("p");
        absent.className = "absent";
        absent.textContent = name + " is missing";
        figure.append(absent);
        return { key, figure, caption };
      }
      const canvas = document.createElement("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", name + " slice");
      figure.append(canvas);
      const panel = { key, name, figure, caption, canvas };
      canvas.addEventListener("wheel", (event) => {
        if (event.ctrlKey) {
          event.preventDefault();
          this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, ...this.place(canvas, event));
          return;
        }
        const to = this.z - Math.sign(event.deltaY);
        // The page scrolls until a panel was clicked, and again beyond the first and last slice.
        if (!this.engaged || to < 0 || to >= this.data.n) return;
        event.preventDefault();
        this.go(to);
      }, { passive: false });
      let drag = null;
      canvas.addEventListener("pointerdown", (event) => {
        canvas.setPointerCapture(event.pointerId);
        const at = this.place(canvas, event);
        drag = { x: event.clientX, y: event.clientY, shown: [...layer.shown], at };
        if (this.tool === "ruler") this.ruler = [at, at];
        this.active = panel;
        this.engage(true);
        this.root.focus({ preventScroll: true });
        if (this.pen && this.pen.on) { this.pen.to(at, true); this.draw(); }
      });
      canvas.addEventListener("pointermove", (event) => {
        if (drag && this.pen && this.pen.on) this.pen.to(this.place(canvas, event), false);
        else if (drag && this.tool === "window") this.window(layer, drag.shown, event.clientX - drag.x, event.clientY - drag.y);
        else if (drag && this.tool === "pan") {
          const [x, y] = this.place(canvas, event);
          this.pan(drag.at[0] - x, drag.at[1] - y);
        } else if (drag) this.ruler = [drag.at, this.place(canvas, event)];
        this.point(panel, event);
      });
      const end = () => {
        if (drag && this.pen) this.pen.end();
        drag = null;
      };
      canvas.addEventListener("pointerup", end);
      canvas.addEventListener("pointercancel", end);
      canvas.addEventListener("pointerleave", () => { this.cursor = null; this.draw(); });
      canvas.addEventListener("dblclick", () => { layer.shown = [...layer.window]; this.draw(); });
      return panel;
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const onSlider = event.target === this.find("slice");
      if (/^(SELECT|OPTION)$/.test(event.target.tagName)) return;
      const layer = this.layers[this.active.key];
      const steps = { ArrowUp: 1, PageUp: 1, ArrowDown: -1, PageDown: -1 };
      const shifts = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] };
      if (event.shiftKey && shifts[event.key] && layer) this.window(layer, [...layer.shown], ...shifts[event.key]);
      else if (event.shiftKey) return;
      else if (steps[event.key] && !onSlider) this.go(this.z + steps[event.key]);
      else if (event.key === "Home" && !onSlider) this.go(0);
      else if (event.key === "End" && !onSlider) this.go(this.data.n - 1);
      else if (event.key === "Escape") this.engage(false);
      else if (event.key === "+" || event.key === "=") this.zoom(1.25);
      else if (event.key === "-") this.zoom(0.8);
      else if (event.key === "w") this.choose("window");
      else if (event.key === "p") this.choose("pan");
      else if (event.key === "l") this.choose("ruler");
      else if (event.key === "o") this.toggle("outlines");
      else if (event.key === "m") this.overlay();
      else if (event.key === "r") this.reset();
      // On a reading page digits are scores.
      else if (/^[1-9]$/.test(event.key) && !this.data.reading) {
        const button = this.find("goto").querySelectorAll("button")[Number(event.key) - 1];
        if (!button) return;
        button.click();
      } else return;
      event.preventDefault();
    }

    // M: the probability map where there is one, else the chosen map, and says so.
    overlay() {
      const which = this.find("which"), box = this.find("map");
      const there = this.layers.probability && !this.blinded;
      if (there && which.value !== "probability") { which.value = "probability"; box.checked = false; }
      this.toggle("map");
      const title = box.checked && which.selectedOptions[0] ? `${which.selectedOptions[0].text} is shown. ` : "";
      this.find("notice").textContent = there ? "" : `${title}There is no probability map here${this.data.reading || this.blinded ? "" : "; cad predict --map makes one"}.`;
    }

    toggle(name) {
      const box = this.find(name);
      if (!box.disabled) box.checked = !box.checked;
      this.draw();
    }

    reset() {
      for (const layer of Object.values(this.layers)) layer.shown = [...layer.window];
      this.ruler = null;
      this.view = { zoom: 1, x: 0.5, y: 0.5 };
      this.pan(0, 0);
    }

    // Right: wider; up: brighter, as on a workstation.
    window(layer, from, dx, dy) {
      const span = layer.high - layer.low;
      const width = Math.min(Math.max((from[1] - from[0]) * Math.exp(dx / 200), span / 200), 4 * span);
      const level = (from[0] + from[1]) / 2 + (dy / 300) * (from[1] - from[0]);
      layer.shown = [level - width / 2, level + width / 2];
      if (layer.floor !== null && layer.shown[0] < layer.floor) layer.shown = [layer.floor, Math.max(layer.shown[1], layer.floor + span / 200)];
      this.draw();
    }

    go(z) {
      this.z = Math.min(Math.max(z, 0), this.data.n - 1);
      const slider = this.find("slice");
      slider.value = this.z + 1;
      const text = `${this.data.numbers[this.z]} of ${this.data.total}, z ${this.data.z[this.z].toFixed(1).replace("-", "\u2212")} mm`;
      slider.setAttribute("aria-valuetext", text);
      this.find("where").textContent = text;
      if (this.pen) this.pen.say();
      this.draw();
    }

    point(panel, event) {
      const [across, down] = this.place(panel.canvas, event);
      const x = Math.floor(across * this.data.width);
      const y = Math.floor(down * this.data.height);
      const inside = x >= 0 && y >= 0 && x < this.data.width && y < this.data.height;
      this.cursor = inside ? { x, y, panel } : null;
      this.draw();
    }

    draw() {
      if (!this.panels) return;
      for (const panel of this.panels) if (panel.canvas) this.paint(panel);
      this.readout();
    }

    value(layer, grey) {
      return grey ? layer.low + ((grey - 1) / 254) * (layer.high - layer.low) : null;
    }

    paint(panel) {
      const { width, height, spacing } = this.data;
      const { canvas } = panel;
      const ratio = Math.min(window.devicePixelRatio || 1, 2);
      const wide = Math.max(Math.round(panel.figure.clientWidth * ratio), 2);
      const high = Math.max(Math.round((wide * height * spacing[1]) / (width * spacing[0])), 2);
      if (canvas.width !== wide || canvas.height !== high) { canvas.width = wide; canvas.height = high; }
      const context = canvas.getContext("2d");
      this.fill(this.layers[panel.key], panel.key === "t2w" && this.find("map").checked);
      // Else single smoothed pixels depend, by one grey level, on what was drawn before.
      context.clearRect(0, 0, wide, high);
      context.imageSmoothingEnabled = true;
      context.imageSmoothingQuality = "high";
      const { zoom, x, y } = this.view;
      const left = (x - 0.5 / zoom) * width;
      const above = (y - 0.5 / zoom) * height;
      context.drawImage(this.buffer, left, above, width / zoom, height / zoom, 0, 0, wide, high);
      const to = (px, py) => [((px - left) / width) * zoom * wide, ((py - above) / height) * zoom * high];
      if (this.find("outlines").checked) this.outline(context, to, ratio);
      this.annotate(context, panel, wide, high, ratio, to);
      const [low, top] = this.layers[panel.key].shown;
      const { digits, unit } = this.layers[panel.key];
      panel.caption.textContent = `${panel.name}  window ${low.toFixed(digits).replace("-", "\u2212")} to ${top.toFixed(digits)} ${unit}`;
      canvas.setAttribute("aria-label", `${panel.name}, slice ${this.data.numbers[this.z]} of ${this.data.total}`);
    }

    // One slice through its window into the buffer; the map laid over it in colour.
    fill(layer, mapped) {
      const { width, height, columns } = this.data;
      const context = this.buffer.getContext("2d");
      const image = context.createImageData(width, height);
      const table = new Uint8ClampedArray(256);
      const [low, high] = layer.shown;
      for (let g = 1; g < 256; g++) table[g] = (255 * (this.value(layer, g) - low)) / (high - low);
      const over = mapped ? this.layers[this.find("which").value] : null;
      const colours = over ? this.colours(over) : null;
      const top = Math.floor(this.z / columns) * height;
      const left = (this.z % columns) * width;
      for (let y = 0, k = 0; y < height; y++) {
        const from = (top + y) * layer.sprite.width + left;
        for (let x = 0; x < width; x++, k += 4) {
          const grey = table[layer.sprite.grey[from + x]];
          const c = over ? colours[over.sprite.grey[from + x]] : null;
          image.data[k] = c ? grey * (1 - c[3]) + c[0] * c[3] : grey;
          image.data[k + 1] = c ? grey * (1 - c[3]) + c[1] * c[3] : grey;
          image.data[k + 2] = c ? grey * (1 - c[3]) + c[2] * c[3] : grey;
          image.data[k + 3] = 255;
        }
      }
      context.putImageData(image, 0, 0);
    }

    colours(layer) {
      const [low, high] = layer.shown;
      return Array.from({ length: 256 }, (_, g) => {
        if (!g) return null;
        const v = Math.min(Math.max((this.value(layer, g) - low) / (high - low), 0), 1);
        return [...ramp(v), 0.12 + 0.5 * v];
      });
    }

    outline(context, to, ratio) {
      const { width, height, regions } = this.data;
      for (const region of regions) {
        const path = new Path2D();
        const same = (x, y) =>
          x >= 0 && y >= 0 && x < width && y < height && this.at(this.labels, this.z, y, x) === region.label;
        const line = (ax, ay, bx, by) => { path.moveTo(...to(ax, ay)); path.lineTo(...to(bx, by)); };
        let seen = null;
        for (let y = 0; y < height; y++)
          for (let x = 0; x < width; x++) {
            if (!same(x, y)) continue;
            if (!seen) seen = { x, y };
            if (!same(x, y - 1)) line(x, y, x + 1, y);
            if (!same(x, y + 1)) line(x, y + 1, x + 1, y + 1);
            if (!same(x - 1, y)) line(x, y, x, y + 1);
            if (!same(x + 1, y)) line(x + 1, y, x + 1, y + 1);
          }
        if (!seen) continue;
        const style = (!this.blinded && STYLE[region.decision]) || STYLE[""];
        const marked = this.marked && region.label === this.marked.label;
        context.setLineDash(marked ? [] : [3 * ratio, 3 * ratio]);
        context.strokeStyle = "rgba(0,0,0,.65)";
        context.lineWidth = (marked ? 4.6 : 2.6) * ratio;
        context.stroke(path);
        context.strokeStyle = style.colour;
        context.lineWidth = (marked ? 2.4 : 1.3) * ratio;
        context.stroke(path);
        context.setLineDash([]);
        const [at, top] = to(seen.x, seen.y);
        this.text(context, style.sign + (marked ? `[${region.id}]` : region.id), at, top - 4 * ratio, ratio, style.colour, "left");
      }
    }

    text(context, text, x, y, ratio, colour, align) {
      context.font = `${11.5 * ratio}px system-ui, sans-serif`;
      context.textAlign = align;
      context.lineJoin = "round";
      context.lineWidth = 2.5 * ratio;
      context.strokeStyle = "rgba(0,0,0,.8)";
      context.strokeText(text, x, y);
      context.fillStyle = colour;
      context.fillText(text, x, y);
    }

    annotate(context, panel, wide, high, ratio, to) {
      const ink = "#d5dadf";
      const [left, right, top, bottom] = this.data.sides;
      const pad = 6 * ratio;
      this.text(context, left, pad, high / 2, ratio, ink, "left");
      this.text(context, right, wide - pad, high / 2, ratio, ink, "right");
      this.text(context, top, wide / 2, pad + 9 * ratio, ratio, ink, "center");
      this.text(context, bottom, wide / 2, high - pad, ratio, ink, "center");
      const bar = (10 / (this.data.width * this.data.spacing[0])) * wide * this.view.zoom;
      context.strokeStyle = ink;
      context.lineWidth = 1.5 * ratio;
      context.beginPath();
      context.moveTo(pad, high - pad - 4 * ratio);
      context.lineTo(pad, high - pad + 1);
      context.lineTo(pad + bar, high - pad + 1);
      context.lineTo(pad + bar, high - pad - 4 * ratio);
      context.stroke();
      this.text(context, "10 mm", pad + bar + 5 * ratio, high - pad + 1, ratio, ink, "left");
      if (panel.key === "t2w" && this.find("map").checked) this.legend(context, wide, ratio);
      if (this.ruler) {
        const ends = this.ruler.map(([a, b]) => to(a * this.data.width, b * this.data.height));
        context.strokeStyle = "#fff";
        context.lineWidth = 1.5 * ratio;
        context.beginPath();
        context.moveTo(...ends[0]);
        context.lineTo(...ends[1]);
        context.stroke();
        this.text(context, `${this.length().toFixed(1)} mm`, ends[1][0] + 6 * ratio, ends[1][1], ratio, "#fff", "left");
      }
      if (this.cursor && this.pen && this.pen.on) this.pen.ring(context, to, ratio);
      else if (this.cursor) {
        const [x, y] = to(this.cursor.x + 0.5, this.cursor.y + 0.5);
        const gap = 7 * ratio;
        context.strokeStyle = "rgba(213,218,223,.75)";
        context.lineWidth = ratio;
        context.beginPath();
        for (const [a, b] of [[x - 3 * gap, x - gap], [x + gap, x + 3 * gap]]) { context.moveTo(a, y); context.lineTo(b, y); }
        for (const [a, b] of [[y - 3 * gap, y - gap], [y + gap, y + 3 * gap]]) { context.moveTo(x, a); context.lineTo(x, b); }
        context.stroke();
      }
    }

    legend(context, wide, ratio) {
      const layer = this.layers[this.find("which").value];
      const [low, high] = layer.shown;
      const size = 90 * ratio, x = wide - size - 8 * ratio, y = 8 * ratio;
      for (let i = 0; i < size; i++) {
        context.fillStyle = `rgb(${ramp(i / size).map(Math.round).join(",")})`;
        context.fillRect(x + i, y, 1, 7 * ratio);
      }
      const below = y + 19 * ratio;
      this.text(context, low.toFixed(layer.digits), x, below, ratio, "#d5dadf", "left");
      this.text(context, high.toFixed(layer.digits), x + size, below, ratio, "#d5dadf", "right");
      this.text(context, `${layer.title} ${layer.unit}`, x + size, below + 14 * ratio, ratio, "#d5dadf", "right");
    }

    readout() {
      const { cursor } = this;
      let text = "";
      if (cursor) {
        text = this.data.layers.map((l) => {
          const layer = this.layers[l.key];
          const value = this.value(layer, this.at(layer.sprite, this.z, cursor.y, cursor.x));
          return `${l.title} ${value === null ? "outside" : value.toFixed(l.digits) + " " + l.unit}`;
        }).join("   ·   ");
        const label = this.at(this.labels, this.z, cursor.y, cursor.x);
        const region = label && this.data.regions.find((r) => r.label === label);
        if (region) text = `region ${region.id}${this.blinded ? "" : "  " + region.text}   ·   ${text}`;
      }
      this.find("readout").textContent = text || "\u00a0";
    }
  }

  window.CadViewer = Viewer;
  const listed = document.getElementById("viewers");
  const all = listed ? JSON.parse(listed.textContent) : [];
  // A link to a region, in the head or in the table, takes the viewer there and gives it the keys.
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("[data-view]");
    const viewer = link && (window.cadViewers || [])[Number(link.dataset.view)];
    const region = viewer && viewer.data.regions.find((r) => r.id === link.dataset.roi);
    if (!region || !viewer.panels) return;
    viewer.visit(region);
    if (link.hash !== `#${viewer.root.id}`) return;
    event.preventDefault();
    viewer.root.scrollIntoView({ block: "nearest" });
    viewer.root.focus({ preventScroll: true });
  });
  window.cadViewers = !listed ? [] : Array.from(document.querySelectorAll(".viewer"), (root) => {
    const viewer = new Viewer(root, all[Number(root.dataset.viewer)]);
    viewer.start();
    return viewer;
  });
})();

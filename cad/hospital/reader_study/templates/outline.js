"use strict";
(() => {
  // The pen of a viewer: corrects one region's voxels with a round brush, by pointer or by keys.
  // It changes the label sprite that the viewer draws outlines from, and nothing else.
  const RADII = [0, 1, 2, 3, 5]; // mm; 0 is one voxel

  class Pen {
    constructor(viewer, { region, changed, least }) {
      this.viewer = viewer;
      this.region = region; // returns the region that is corrected
      this.changed = changed; // is told a region's voxels after each stroke, null where it is as given
      this.least = least; // voxels that a region needs
      this.size = 2;
      this.strokes = [];
      this.stroke = null;
      this.last = null;
      this.given = viewer.labels.grey.slice();
      this.find = (name) => viewer.root.querySelector(".pen-" + name);
      this.find("less").addEventListener("click", () => this.resize(-1));
      this.find("more").addEventListener("click", () => this.resize(1));
      this.find("undo").addEventListener("click", () => this.undo());
      this.find("given").addEventListener("click", () => this.restore());
      for (const button of viewer.root.querySelectorAll(".pen [data-tool]"))
        button.addEventListener("click", () => viewer.root.focus({ preventScroll: true }));
      // Before the viewer's own keys: with the pen in hand arrows move it.
      viewer.root.addEventListener("keydown", (event) => {
        if (!this.key(event)) return;
        event.preventDefault();
        event.stopPropagation();
      }, true);
      viewer.pen = this;
      this.resize(0);
    }

    get on() { return this.viewer.tool === "draw" || this.viewer.tool === "erase"; }
    get radius() { return RADII[this.size]; }

    // Where a voxel lies in the label sprite, and every voxel in the order z, y, x.
    offset(z, y, x) {
      const { columns, width, height } = this.viewer.data;
      return (Math.floor(z / columns) * height + y) * this.viewer.labels.width + (z % columns) * width + x;
    }
    *voxels(first = 0, last = this.viewer.data.n) {
      const { width, height } = this.viewer.data;
      for (let z = first; z < last; z++)
        for (let y = 0; y < height; y++)
          for (let x = 0; x < width; x++) yield this.offset(z, y, x);
    }

    // First voxel and length of every run of a label.
    runs(grey, label) {
      const found = [];
      let k = 0, open = false;
      for (const at of this.voxels()) {
        const inside = grey[at] === label;
        if (inside && !open) found.push(k, 0);
        if (inside) found[found.length - 1]++;
        open = inside;
        k++;
      }
      return found;
    }

    // What an earlier visit drew: the corrected regions' voxels take the place of those given.
    load(drawn) {
      const { grey } = this.viewer.labels;
      const places = [...this.voxels()];
      for (const [label] of drawn) for (const at of places) if (grey[at] === label) grey[at] = 0;
      for (const [label, runs] of drawn)
        for (let i = 0; i < runs.length; i += 2)
          for (let k = runs[i]; k < runs[i] + runs[i + 1]; k++) grey[places[k]] = label;
    }

    // A stroke begins, goes on and ends; places are shares of the slice.
    to(place, begin) {
      const { width, height } = this.viewer.data;
      const next = [place[0] * width, place[1] * height];
      if (begin) { this.stroke = new Map(); this.last = next; }
      if (!this.stroke) return;
      const far = Math.hypot(next[0] - this.last[0], next[1] - this.last[1]);
      const steps = Math.max(Math.ceil(2 * far), 1);
      for (let k = 1; k <= steps; k++)
        this.dab(...[0, 1].map((i) => this.last[i] + ((next[i] - this.last[i]) * k) / steps));
      this.last = next;
    }

    dab(px, py) {
      const { data, labels, z } = this.viewer;
      const { width, height, spacing } = data;
      const region = this.region();
      if (!region) return;
      const [from, into] = this.viewer.tool === "draw" ? [0, region.label] : [region.label, 0];
      const reach = [0, 1].map((i) => Math.ceil(this.radius / spacing[i]) + 1);
      const [cx, cy] = [Math.floor(px), Math.floor(py)];
      for (let y = Math.max(cy - reach[1], 0); y <= Math.min(cy + reach[1], height - 1); y++)
        for (let x = Math.max(cx - reach[0], 0); x <= Math.min(cx + reach[0], width - 1); x++) {
          const near = Math.hypot((x + 0.5 - px) * spacing[0], (y + 0.5 - py) * spacing[1]) <= this.radius;
          const at = this.offset(z, y, x);
          // A voxel of another region stays that region's.
          if (!(near || (x === cx && y === cy)) || labels.grey[at] !== from) continue;
          if (!this.stroke.has(at)) this.stroke.set(at, from);
          labels.grey[at] = into;
        }
    }

    end() {
      const region = this.region();
      const { stroke } = this;
      this.stroke = null;
      if (!stroke || !stroke.size || !region) return;
      this.strokes.push({ stroke, region });
      this.tell(region);
    }

    undo() {
      const done = this.strokes.pop();
      if (!done) return;
      for (const [at, before] of done.stroke) this.viewer.labels.grey[at] = before;
      this.tell(done.region);
    }

    // The region as it was given, where no other region has taken its voxels since.
    restore() {
      const region = this.region();
      if (!region) return;
      const { grey } = this.viewer.labels;
      const stroke = new Map();
      for (const at of this.voxels()) {
        const wanted = this.given[at] === region.label;
        if (wanted ? grey[at] !== 0 : grey[at] !== region.label) continue;
        stroke.set(at, grey[at]);
        grey[at] = wanted ? region.label : 0;
      }
      if (stroke.size) this.strokes.push({ stroke, region });
      this.tell(region);
    }

    tell(region) {
      const runs = this.runs(this.viewer.labels.grey, region.label);
      const same = runs.join() === this.runs(this.given, region.label).join();
      this.changed(region, same || this.wrong(region) ? null : runs);
      this.say();
      this.viewer.draw();
    }

    // Why an outline is not kept: what cannot be measured, or is another region, is no correction.
    wrong(region) {
      const { grey } = this.viewer.labels;
      let now = 0, before = 0, both = 0;
      for (const at of this.voxels()) {
        const [a, b] = [grey[at] === region.label, this.given[at] === region.label];
        now += a; before += b; both += a && b;
      }
      if (now < this.least) return `not kept: fewer than ${this.least} voxels`;
      return before && !both ? "not kept: it lies beside the region as given" : "";
    }

    say() {
      const region = this.region();
      if (!region) return;
      const count = (grey, first, last) => {
        let n = 0;
        for (const at of this.voxels(first, last)) n += grey[at] === region.label;
        return n;
      };
      const { z } = this.viewer;
      const { grey } = this.viewer.labels;
      const here = `${count(grey, z, z + 1)} voxels on this slice (given: ${count(this.given, z, z + 1)})`;
      const wrong = this.wrong(region);
      this.find("said").textContent = `Region ${region.id}: ${here}, ${count(grey)} in all (${count(this.given)})${wrong && ` — ${wrong}`}`;
    }

    resize(step) {
      this.size = Math.min(Math.max(this.size + step, 0), RADII.length - 1);
      this.find("size").textContent = this.radius ? `${2 * this.radius} mm` : "1 voxel";
      this.viewer.draw();
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
      if (/^(SELECT|OPTION|INPUT)$/.test(event.target.tagName)) return false;
      const { viewer } = this;
      const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (event.key === "d" || event.key === "e") viewer.choose(event.key === "d" ? "draw" : "erase");
      else if (event.key === "u") this.undo();
      else if (event.key === "[" || event.key === "]") this.resize(event.key === "[" ? -1 : 1);
      else if (!this.on) return false;
      else if (event.key === "Escape") viewer.choose("window");
      else if (steps[event.key]) this.move(...steps[event.key]);
      else if (event.key === " " && event.target === viewer.root) this.press();
      else return false;
      viewer.draw();
      return true;
    }

    // By keys the pen begins in the middle of the slice, or of the region where the slice has it.
    cursor() {
      const { viewer } = this;
      const { width, height } = viewer.data;
      if (viewer.cursor) return viewer.cursor;
      const middle = viewer.centre.get((this.region() || {}).label);
      const [x, y] = middle && middle.z === viewer.z ? [middle.x / middle.n, middle.y / middle.n] : [width / 2, height / 2];
      return { x: Math.round(x), y: Math.round(y), panel: viewer.active };
    }

    move(dx, dy) {
      const { width, height } = this.viewer.data;
      const { x, y, panel } = this.cursor();
      this.viewer.cursor = {
        x: Math.min(Math.max(x + dx, 0), width - 1), y: Math.min(Math.max(y + dy, 0), height - 1), panel,
      };
    }

    press() {
      const { width, height } = this.viewer.data;
      this.viewer.cursor = this.cursor();
      const { x, y } = this.viewer.cursor;
      this.to([(x + 0.5) / width, (y + 0.5) / height], true);
      this.end();
    }

    ring(context, to, ratio) {
      const { cursor, data } = this.viewer;
      const middle = [cursor.x + 0.5, cursor.y + 0.5];
      const [x, y] = to(...middle);
      const [edge] = to(middle[0] + Math.max(this.radius / data.spacing[0], 0.5), middle[1]);
      context.strokeStyle = this.viewer.tool === "draw" ? "#fff" : "#f08a4b";
      context.lineWidth = 1.2 * ratio;
      context.beginPath();
      context.arc(x, y, edge - x, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  window.CadPen = Pen;
})();

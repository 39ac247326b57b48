"use strict";
(() => {
  const body = document.querySelector("#patients tbody");
  const rows = Array.from(body.rows, (row) => ({
    row,
    patient: row.cells[0].textContent.trim(),
    text: (row.cells[0].textContent + " " + row.cells[3].textContent).toLowerCase(),
    p: Number(row.dataset.p),
    decision: row.dataset.decision,
    status: row.dataset.status,
    counts: row.dataset.counts.split(" ").map(Number),
  }));
  const order = { malignant: 3, refer: 2, benign: 1, "": 0 };
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = {
    patient: (a, b) => collator.compare(a.patient, b.patient),
    p: (a, b) => a.p - b.p,
    decision: (a, b) => order[a.decision] - order[b.decision] || a.p - b.p,
    status: (a, b) => collator.compare(a.status, b.status) || b.p - a.p,
    malignant: (a, b) => a.counts[0] - b.counts[0] || a.p - b.p,
    refer: (a, b) => a.counts[1] - b.counts[1] || a.p - b.p,
    benign: (a, b) => a.counts[2] - b.counts[2] || a.p - b.p,
  };
  const buttons = Array.from(document.querySelectorAll("#patients th button"));

  function sort(button) {
    const head = button.closest("th");
    const key = button.dataset.key;
    const was = head.getAttribute("aria-sort");
    const textual = key === "patient" || key === "status";
    const ascending = was ? was === "descending" : textual;
    for (const other of buttons) other.closest("th").removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const sign = ascending ? 1 : -1;
    rows.sort((a, b) => sign * compare[key](a, b));
    const moved = document.createDocumentFragment();
    for (const item of rows) moved.append(item.row);
    body.append(moved);
  }
  for (const button of buttons) button.addEventListener("click", () => sort(button));

  const field = (id) => document.getElementById(id);
  const fields = ["find", "least", "most", "decision", "status"].map(field);
  const defaults = fields.map((f) => f.value);

  function filter() {
    const [find, least, most, decision, status] = fields.map((f) => f.value);
    const words = find.trim().toLowerCase();
    const low = least === "" ? 0 : Number(least);
    const high = most === "" ? 1 : Number(most);
    let shown = 0;
    for (const item of rows) {
      // A patient without a probability is hidden only when the range was narrowed.
      const inside = item.p < 0 ? low <= 0 && high >= 1 : item.p >= low && item.p <= high;
      const fits =
        inside &&
        (!words || item.text.includes(words)) &&
        (!decision || (item.decision || "none") === decision) &&
        (!status || item.status === status);
      item.row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    field("shown").textContent = `${shown} of ${rows.length} patients`;
  }
  for (const f of fields) f.addEventListener("input", filter);
  field("clear").addEventListener("click", () => {
    fields.forEach((f, i) => { f.value = defaults[i]; });
    filter();
  });
})();

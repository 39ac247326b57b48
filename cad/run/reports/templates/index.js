"use strict";
(() => {
  const body = document.querySelector("#patients tbody");
  const rows = Array.from(body.rows, (row) => ({
    row,
    patient: row.cells[0].textContent.trim(),
    text: (row.cells[0].textContent + " " + row.dataset.regions).toLowerCase(),
    status: row.dataset.status,
    ...known(row),
  }));
  // What nobody has scored and is held back has no place in any order.
  function known(row) {
    if (row.classList.contains("blinded")) return { p: -1, man: -1, readers: -1, decision: "", counts: [0, 0, 0] };
    const { p, man, readers, decision, counts } = row.dataset;
    return { p: Number(p), man: Number(man), readers: Number(readers), decision, counts: counts.split(" ").map(Number) };
  }
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = {
    patient: (a, b) => collator.compare(a.patient, b.patient),
    p: (a, b) => a.p - b.p,
    man: (a, b) => a.man - b.man,
    readers: (a, b) => a.readers - b.readers,
    status: (a, b) => collator.compare(a.status, b.status) || b.p - a.p,
    malignant: (a, b) => a.counts[0] - b.counts[0] || a.p - b.p,
    refer: (a, b) => a.counts[1] - b.counts[1] || a.p - b.p,
    benign: (a, b) => a.counts[2] - b.counts[2] || a.p - b.p,
  };

  // Only rows that can be seen are laid out; scrolling, Show all and printing bring the rest.
  const CHUNK = 150;
  let wanted = rows;
  let limit = rows.length;
  const box = document.querySelector(".scroll");
  const more = document.getElementById("more");

  function show(n) {
    limit = Math.min(n, wanted.length);
    body.replaceChildren(...wanted.slice(0, limit).map((item) => item.row));
    more.hidden = limit === wanted.length;
  }
  box.addEventListener("scroll", () => {
    if (limit < wanted.length && box.scrollTop + 2 * box.clientHeight > box.scrollHeight) {
      body.append(...wanted.slice(limit, limit + CHUNK).map((item) => item.row));
      limit = Math.min(limit + CHUNK, wanted.length);
      more.hidden = limit === wanted.length;
    }
  });
  more.addEventListener("click", () => show(wanted.length));
  window.addEventListener("beforeprint", () => show(wanted.length));

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
    filter();
  }
  for (const button of buttons) button.addEventListener("click", () => sort(button));

  const field = (id) => document.getElementById(id);
  const fields = ["find", "least", "most", "decision", "status"].map(field);
  const defaults = fields.map((f) => f.value);

  function filter() {
    const [find, least, most, decision, status] = fields.map((f) => f.value);
    const words = find.trim().toLowerCase();
    const low = least === "" ? 0 : Number(least) / 100;
    const high = most === "" ? 1 : Number(most) / 100;
    wanted = rows.filter((item) => {
      // A patient without a probability is left out only when the range was narrowed.
      const inside = item.p < 0 ? low <= 0 && high >= 1 : item.p >= low && item.p <= high;
      return (
        inside &&
        (!words || item.text.includes(words)) &&
        (!decision || (item.decision || "none") === decision) &&
        (!status || item.status === status)
      );
    });
    box.scrollTop = 0;
    show(CHUNK);
    field("shown").textContent = `${wanted.length} of ${rows.length} patients`;
  }
  for (const f of fields) f.addEventListener("input", filter);
  field("clear").addEventListener("click", () => {
    fields.forEach((f, i) => { f.value = defaults[i]; });
    filter();
  });
})();

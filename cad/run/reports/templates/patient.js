"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page").textContent);
  // A browser may refuse to keep anything, also by throwing: the page works without.
  const store = {
    get() { try { return JSON.parse(localStorage.getItem(page.key) || "null"); } catch { return null; } },
    set(value) { try { localStorage.setItem(page.key, JSON.stringify(value)); } catch { /* not kept */ } },
  };

  function reveal(own) {
    document.body.classList.remove("blinded");
    const form = document.getElementById("blind");
    if (form) form.hidden = true;
    const said = document.getElementById("own-said");
    const given = Object.entries(own.scores || {});
    if (said && given.length) {
      said.textContent = "You: " + given.map(([roi, score]) => `region ${roi} ${score} of 5`).join(", ") + ", before seeing the results.";
      said.hidden = false;
    }
    document.dispatchEvent(new Event("cad-reveal"));
  }

  const form = document.getElementById("blind");
  if (form) {
    const kept = store.get();
    if (kept) reveal(kept);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const scores = {};
      for (const field of form.querySelectorAll("input:checked")) scores[field.dataset.roi] = Number(field.value);
      const own = { scores };
      store.set(own);
      reveal(own);
    });
    document.getElementById("waive").addEventListener("click", () => {
      const own = { waived: true };
      store.set(own);
      reveal(own);
    });
  }

  const copy = document.getElementById("copy");
  if (copy) copy.addEventListener("click", async () => {
    const text = document.getElementById("paragraph").innerText.replace(/\n{2,}/g, "\n");
    const said = document.getElementById("copied");
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "copied";
    } catch {
      // Without leave to write the clipboard the text is marked, ready for Ctrl+C.
      getSelection().selectAllChildren(document.getElementById("paragraph"));
      said.textContent = "marked: press Ctrl+C";
    }
  });
})();

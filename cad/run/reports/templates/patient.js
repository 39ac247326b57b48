"use strict";
(() => {
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

// Set the colours before the first paint. Not a module: modules run after the page has been parsed.

(() => {
  const KEPT = "pyggml.theme";
  const { dataset } = document.documentElement;
  dataset.theme = "system";
  try {
    dataset.theme = localStorage.getItem(KEPT) ?? "system";
  } catch {
    // Storage is disabled.
  }
  addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = dataset.theme;
    choice.addEventListener("change", () => {
      dataset.theme = choice.value;
      try {
        localStorage.setItem(KEPT, choice.value);
      } catch {
        // The choice lasts until the page is closed.
      }
    });
  });
})();

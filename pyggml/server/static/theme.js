// Set the colours before the first paint. Not a module: modules run after the page has been parsed.

(() => {
  const KEPT = "pyggml.theme";

  function kept() {
    try {
      return localStorage.getItem(KEPT) ?? "system";
    } catch {
      return "system"; // storage is disabled
    }
  }

  function keep(theme) {
    try {
      localStorage.setItem(KEPT, theme);
    } catch {
      // The choice lasts until the page is closed.
    }
  }

  document.documentElement.dataset.theme = kept();
  addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.value = document.documentElement.dataset.theme;
    choice.addEventListener("change", () => {
      document.documentElement.dataset.theme = choice.value;
      keep(choice.value);
    });
  });
})();

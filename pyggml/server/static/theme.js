// Sets the colours before anything is drawn, so this is no module: modules run after the page has been read.

(() => {
  const KEPT = "pyggml.theme";

  function kept() {
    try {
      return localStorage.getItem(KEPT) ?? "system";
    } catch {
      return "system"; // the browser keeps nothing
    }
  }

  function keep(theme) {
    try {
      localStorage.setItem(KEPT, theme);
    } catch {
      // It holds until the page is closed.
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

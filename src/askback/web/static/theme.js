// Sets the chosen theme before anything is drawn; the default is the system's theme.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("askback-theme");
  } catch {
    // Storage may be disabled; the system's theme is used then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

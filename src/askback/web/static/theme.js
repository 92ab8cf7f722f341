// Before anything is drawn: the theme that was chosen here. Without a choice the system's counts.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("askback-theme");
  } catch {
    // Storage may be switched off; the system's theme is good then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

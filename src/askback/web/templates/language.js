"use strict";
for (const button of document.querySelectorAll("[data-language]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    document.cookie = `askback_language=${button.dataset.language}; path=/; max-age=31536000; samesite=strict`;
    location.reload();
  });
}

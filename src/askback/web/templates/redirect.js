"use strict";
// Redirects to the page's own host name, if this browser can reach it. The address bar loses the token, but leads back
// here until the code is used.
const onward = document.getElementById("onward");
history.replaceState(null, "", onward.dataset.step);
const unreachable = document.getElementById("unreachable");
unreachable.hidden = true;
fetch(onward.dataset.check, { mode: "cors", credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(5000) })
  .then((answer) => answer.status === 204)
  .catch(() => false)
  .then((reached) => {
    if (reached) location.replace(onward.href);
    else unreachable.hidden = false;
  });

// The page of one file: its text can be copied as it is in the file.

import { copyText, toast } from "./frame.js";
import { t } from "./translations.js";

const button = document.getElementById("copy");

async function copy() {
  const answer = await fetch(button.dataset.address, { credentials: "same-origin", cache: "no-store" }).catch(() => null);
  if (answer === null) toast(t("frame.offline"));
  else if (answer.ok) await copyText(await answer.text());
  else toast(t("frame.failed", { status: answer.status }));
}

button?.addEventListener("click", copy);

"""What can be checked of a page for people who see little, hear it read, or use no mouse. Runs in the page itself."""

from __future__ import annotations

from playwright.sync_api import Page

_CHECK = r"""() => {
  const found = [];
  const say = (rule, element) => found.push(`${rule}: ${element ? element.outerHTML.slice(0, 160) : ""}`);
  const visible = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && !element.closest(".visually-hidden");
  const text = (element) => (element ? element.textContent.trim() : "");

  function nameOf(element) {
    const by = element.getAttribute("aria-labelledby");
    if (by) return by.split(/\s+/).map((id) => text(document.getElementById(id))).join(" ").trim();
    if (element.getAttribute("aria-label")) return element.getAttribute("aria-label").trim();
    if (element.labels && element.labels.length > 0) return [...element.labels].map(text).join(" ").trim();
    if (["INPUT", "SELECT", "TEXTAREA"].includes(element.tagName)) return element.title.trim();
    const pictures = [...element.querySelectorAll("img[alt], svg[aria-label]")].map((each) => each.alt ?? each.getAttribute("aria-label"));
    return `${text(element)} ${pictures.join(" ")}`.trim() || element.title.trim();
  }

  // Names, roles and references.
  for (const element of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, dialog, [role=img], [role=group], [role=timer], [tabindex='0']")) {
    if (visible(element) && nameOf(element) === "" && element.getAttribute("role") !== "status") say("has no name", element);
  }
  for (const element of document.querySelectorAll("img:not([alt])")) say("has no alt", element);
  for (const element of document.querySelectorAll("[aria-labelledby], [aria-describedby], [aria-controls], label[for]")) {
    for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls", "for"]) {
      for (const id of (element.getAttribute(attribute) ?? "").split(/\s+/).filter(Boolean)) {
        if (!document.getElementById(id)) say(`${attribute} leads nowhere`, element);
      }
    }
  }
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  for (const id of new Set(ids.filter((each, place) => ids.indexOf(each) !== place))) say(`id ${id} stands twice`);
  for (const element of document.querySelectorAll("[tabindex]")) if (element.tabIndex > 0) say("takes the focus out of order", element);
  for (const element of document.querySelectorAll("ul > :not(li, template, script), ol > :not(li, p), dl > :not(div, dt, dd, p)")) say("is no item of its list", element);

  // Landmarks and headings.
  if (!document.documentElement.lang) say("the page has no language");
  if (document.title.trim() === "") say("the page has no title");
  for (const place of ["main", "header.site-head", "nav.site-nav"]) if (document.querySelectorAll(place).length !== 1) say(`not one ${place}`);
  for (const element of document.querySelectorAll("nav:not([aria-label]), aside:not([aria-label])")) say("has no name", element);
  const headings = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(visible);
  if (headings.filter((each) => each.tagName === "H1").length !== 1) say("not one h1");
  let before = 0;
  for (const heading of headings) {
    const level = Number(heading.tagName[1]);
    if (level > before + 1) say("skips a level of headings", heading);
    before = level;
  }

  // Contrast of every text with what is behind it.
  const numbers = (color) => {
    const parts = color.match(/[\d.]+/g).map(Number);
    const scale = color.startsWith("color(") ? 255 : 1;
    return { rgb: parts.slice(0, 3).map((each) => each * scale), alpha: parts[3] ?? 1 };
  };
  const over = (top, alpha, ground) => top.map((each, place) => each * alpha + ground[place] * (1 - alpha));
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    const { rgb, alpha } = numbers(getComputedStyle(element).backgroundColor);
    return alpha === 1 ? rgb : over(rgb, alpha, ground(element.parentElement));
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((each) => each / 255).map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (node.textContent.trim() === "" || ["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(element.tagName) || !visible(element)) continue;
    if (element.closest(":disabled, .skip-link, svg")) continue;
    const style = getComputedStyle(element);
    const { rgb, alpha } = numbers(style.color);
    const behind = ground(element);
    const [one, other] = [light(over(rgb, alpha, behind)), light(behind)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (contrast < least) say(`contrast ${contrast.toFixed(2)}`, element);
  }
  return [...new Set(found)];
}"""

_FOCUSED = """() => {
  const element = document.activeElement;
  const style = getComputedStyle(element);
  const all = [...document.querySelectorAll("*")];
  return {
    place: all.indexOf(element),
    text: element.outerHTML.slice(0, 120),
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    box: element.getBoundingClientRect().width > 0,
    body: element === document.body,
  };
}"""


def complaints(page: Page) -> list[str]:
    """What is wrong with the page as it stands now."""
    found: list[str] = page.evaluate(_CHECK)
    return found


def focus_complaints(page: Page, most: int = 60) -> list[str]:
    """What is wrong with going through the page by Tab: the order, what cannot be seen, and a missing ring."""
    found, before = [], -1
    for _ in range(most):
        page.keyboard.press("Tab")
        at = page.evaluate(_FOCUSED)
        if at["body"] or at["place"] <= before == -1:
            break
        if at["place"] < before:
            break
        found += [f"no ring: {at['text']}"] * (not at["ring"])
        found += [f"not to be seen: {at['text']}"] * (not at["box"])
        before = at["place"]
    else:
        found.append("Tab does not come to an end")
    return found

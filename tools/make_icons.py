"""Draws the app icons of the page from its icon.svg, with Chromium: `python tools/make_icons.py`."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

STATIC = Path(__file__).resolve().parent.parent / "src/askback/web/static"
COLOUR = "#5b57d9"
ICONS = (
    ("icon-192.png", 192, "transparent", 1.0, ""),
    ("icon-512.png", 512, "transparent", 1.0, ""),
    # Systems cut a maskable icon to a circle or a square: the picture is within 80 % of it, on a full ground.
    (
        "icon-maskable.png",
        512,
        COLOUR,
        0.68,
        "svg path:first-child { fill: #fff } svg path:nth-child(2) { stroke: #5b57d9 } svg circle { fill: #5b57d9 }",
    ),
    (
        "icon-180.png",
        180,
        COLOUR,
        0.72,
        "svg path:first-child { fill: #fff } svg path:nth-child(2) { stroke: #5b57d9 } svg circle { fill: #5b57d9 }",
    ),
    # Android uses the transparency alone.
    ("icon-badge.png", 96, "transparent", 1.0, "svg path:first-child { fill: #fff; mask: url(#sign) }"),
)
"""Name, size, ground, the part that the picture fills, and more style."""
_SIGN = '<mask id="sign" maskUnits="userSpaceOnUse" x="0" y="0" width="24" height="24"><rect width="24" height="24" fill="#fff"/>{}</mask>'


def draw(page: Page, name: str, size: int, ground: str, part: float, style: str) -> None:
    source = (STATIC / "icon.svg").read_text()
    if "mask:" in style:
        outline, _, sign = source.removesuffix("</svg>\n").removesuffix("</svg>").partition("/>")
        dark = sign.replace("#fff", "#000")
        source = f"{outline}/><defs>{_SIGN.format(dark)}</defs></svg>"
    look = f"body {{ margin: 0; width: {size}px; height: {size}px; display: grid; place-items: center; background: {ground} }}"
    look += f" svg {{ width: {size * part}px; height: {size * part}px }} {style}"
    page.set_viewport_size({"width": size, "height": size})
    page.set_content(f"<style>{look}</style>{source}")
    page.screenshot(path=STATIC / name, omit_background=True)


def main() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        for icon in ICONS:
            draw(page, *icon)
        browser.close()


if __name__ == "__main__":
    main()

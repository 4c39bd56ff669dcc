"""Reports in a real browser: no errors, no overflow on a phone, all figures drawn."""

import html
import json
import re
import shutil
import subprocess

import pytest
from pages import TWO, X, model_of, rows_of

from softmargin import BayesianSVC
from softmargin.report import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
MEASURE = """
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, edge = page.documentElement.clientWidth
    const figures = [...page.querySelectorAll("figure svg")].map(each => each.getBoundingClientRect())
    const cut = [...page.querySelectorAll("svg text")].filter(each => {
      const box = each.getBoundingClientRect(), sheet = each.ownerSVGElement.getBoundingClientRect()
      return box.left < sheet.left - 2 || box.right > sheet.right + 2
    })
    return {
      wide: page.documentElement.scrollWidth - edge,
      figures: figures.length,
      empty: figures.filter(box => box.width < 100 || box.height < 30).length,
      beyond: figures.filter(box => box.right > edge + 1).length,
      cut: cut.map(each => each.lastChild.textContent).slice(0, 5),
      scale: Math.min(...[...page.querySelectorAll("svg")].map(each => each.getBoundingClientRect().width /
        each.viewBox.baseVal.width)),
      background: frame.contentWindow.getComputedStyle(page.body).backgroundColor
    }
  })
  document.getElementById("found").textContent = JSON.stringify(found)
})
"""


def opened(tmp_path, pages, width, *options):
    """What the browser measures of pages in frames of the given width, and what it writes to the console."""
    style = f"width:{width}px;height:900px;border:0;display:block"
    frames = "".join(f'<iframe srcdoc="{html.escape(page)}" style="{style}"></iframe>' for page in pages)
    outer = tmp_path / "frames.html"
    outer.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><link rel="icon" href="data:,"><body><pre id="found"></pre>{frames}'
        f"<script>{MEASURE}</script></body>",
        encoding="utf-8",
    )
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}", *options, "--dump-dom", outer.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    return json.loads(html.unescape(found[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def pages():
    names = ("vb", "spike-slab", "terms", "pairs", "regression", "kernel")
    found = {name: report(model_of(name), *rows_of(name)).html for name in names}
    long = X.rename(columns={"a": "a_name_without_any_space_" * 12})
    model = BayesianSVC(learning_rate=0.5).fit(long, ["x" * 200 if label == "yes" else label for label in TWO])
    return found | {"long names": report(model, long).html}


@pytest.mark.parametrize("width", [380, pytest.param(1200, marks=pytest.mark.soak)])
def test_pages_fit_the_window_and_show_all_figures(tmp_path, pages, width):
    found, console = opened(tmp_path, pages.values(), width)
    assert console == []
    for name, page, seen in zip(pages, pages.values(), found, strict=True):
        assert seen["wide"] <= 0 and seen["beyond"] == 0, name
        assert seen["figures"] == page.count("<figure") and seen["empty"] == 0, name
        assert seen["cut"] == [], name
        assert seen["scale"] > 0.9, name  # letters of 11 pixels are not smaller than 10


@pytest.mark.soak
def test_pages_are_dark_where_the_reader_wants_it(tmp_path, pages):
    light, _ = opened(tmp_path, [pages["vb"]], 1200, "--blink-settings=preferredColorScheme=1")
    dark, console = opened(tmp_path, [pages["vb"]], 1200, "--blink-settings=preferredColorScheme=0")
    assert light[0]["background"] == "rgb(255, 255, 255)" and console == []
    assert dark[0]["background"] == "rgb(13, 17, 23)"

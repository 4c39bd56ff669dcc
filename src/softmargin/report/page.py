"""The page around the sections: one file, no script, nothing fetched, light and dark, narrow and wide, on paper."""

from __future__ import annotations

from typing import NamedTuple

from softmargin.report.text import safe

__all__ = ["Section", "page"]


class Section(NamedTuple):
    """A part of a report: its heading, an anchor, and its HTML."""

    heading: str
    anchor: str
    html: str


_STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#57606a;--paper:#fff;--card:#f6f8fa;--rule:#d8dee4;--s0:#0072b2;
--s1:#d55e00;--s2:#009e73;--s3:#b8860b;--s4:#a3478b;--s5:#4b5bd6;--band:#0072b2;--accent:#0a58a6;--shade:#1f232838}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b1;--paper:#0d1117;--card:#161b22;--rule:#30363d;
--s0:#58b0f0;--s1:#ff9a57;--s2:#3fcf9f;--s3:#e8bf4d;--s4:#e59ad0;--s5:#a3b0ff;--band:#58b0f0;--accent:#79b8ff;--shade:#e6edf340}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",
Roboto,sans-serif}
main,header,footer{max-width:1080px;margin:0 auto;padding:0 16px}
header{padding-top:28px}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:40px 0 10px;padding-top:10px;border-top:1px solid var(--rule)}
h3{font-size:1rem;margin:20px 0 6px}
p{margin:8px 0}
.lead{color:var(--soft);margin:0 0 8px;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:.9rem;margin:12px 0 0}
a{color:var(--accent);text-decoration:none}
a:hover{text-decoration:underline}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--card);border-radius:4px;
padding:1px 4px;overflow-wrap:anywhere}
pre{background:var(--card);border-radius:6px;padding:12px;overflow-x:auto;font-size:.85rem}
pre code{background:none;padding:0;overflow-wrap:normal}
dl{margin:0}
.words dl{background:var(--card);border-radius:10px;padding:4px 18px 14px}
.words dt{font-weight:600;margin-top:14px}
.words dd{margin:2px 0 0}
.worries{margin:4px 0 0;padding-left:20px}
.worries li{margin:4px 0}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:18px 28px;
align-items:start}
figure{margin:6px 0;min-width:0;break-inside:avoid}
svg{display:block;width:100%;max-width:520px;height:auto;overflow:hidden}
figcaption{font-size:.88rem;color:var(--soft);max-width:520px;margin-top:4px;overflow-wrap:anywhere}
.note{font-size:.88rem;color:var(--soft)}
.wide{overflow:auto;max-width:100%;max-height:470px;width:fit-content;background:
linear-gradient(var(--paper),var(--paper)) bottom/100% 16px no-repeat local,
linear-gradient(90deg,var(--paper),var(--paper)) right/16px 100% no-repeat local,
linear-gradient(0deg,var(--shade),transparent) bottom/100% 14px no-repeat scroll,
linear-gradient(270deg,var(--shade),transparent) right/14px 100% no-repeat scroll}
table{border-collapse:collapse;font-size:.82rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 6px;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
tbody th{font-weight:400;max-width:260px;overflow:hidden;text-overflow:ellipsis}
thead th{font-weight:600;color:var(--soft);position:sticky;top:0;background:var(--paper)}
footer{color:var(--soft);font-size:.85rem;padding-top:28px;padding-bottom:36px}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--ink)}
svg .tick{font-size:11px;fill:var(--soft)}
svg .label{fill:var(--soft)}
svg .share{font-size:11px}
svg .times{font-weight:600;font-size:13px}
.grid{stroke:var(--rule);stroke-width:.7}
.axis{stroke:var(--soft);stroke-width:1}
.zero{stroke:var(--soft);stroke-width:1}
.mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:4 3}
.whisker{stroke:var(--ink);stroke-width:1.4}
.interval{stroke-width:2.4;stroke-linecap:round;opacity:.6}
.thin{stroke-width:1;opacity:.35}
.curve{fill:none;stroke-width:1.8;stroke-linejoin:round}
.band{fill:var(--band);opacity:.16}
.bar{fill:var(--s0);opacity:.8}
.faint{fill:var(--s0);opacity:.35}
.point{stroke-width:1.3}
"""
_SERIES = "".join(
    f".interval.s{r},.curve.s{r}{{stroke:var(--s{r})}}.point.s{r}{{fill:var(--s{r});stroke:var(--s{r})}}"
    f".fill.s{r}{{fill:var(--s{r});opacity:.8}}"
    for r in range(6)
)
_SIGNS = (
    ".interval.pos{stroke:var(--s1)}.interval.neg{stroke:var(--s0)}.point.pos{fill:var(--s1);stroke:var(--s1)}"
    ".point.neg{fill:var(--s0);stroke:var(--s0)}.point.open{fill:var(--paper)}.field.right{fill:var(--s0)}"
    ".field.wrong{fill:var(--s1)}.bar.pos{fill:var(--s1)}.bar.neg{fill:var(--s0)}"
)
_PAPER = """
@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--paper:#fff;--card:#f4f4f4;--rule:#ccc;
--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#b8860b;--s4:#a3478b;--s5:#4b5bd6;--band:#0072b2}nav{display:none}body{font-size:11pt}
h2{break-after:avoid}tr{break-inside:avoid}.wide{overflow:visible;max-height:none;background:none}a{color:inherit}
.figures{grid-template-columns:1fr 1fr}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, lead: str, words: str, sections: list[Section], foot: str) -> str:
    """One HTML file; ``title`` is plain text, all else is HTML already."""
    links = "".join(f'<a href="#{each.anchor}">{safe(each.heading)}</a>' for each in sections)
    parts = "".join(
        f'<section id="{each.anchor}"><h2>{safe(each.heading)}</h2>{each.html}</section>' for each in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="color-scheme" content="light dark">'
        f'<title>{safe(title)}</title><link rel="icon" href="data:,">'
        f"<style>{_STYLE}{_SERIES}{_SIGNS}{_PAPER}</style></head><body>"
        f'<header><h1>{safe(title)}</h1><p class="lead">{lead}</p><nav aria-label="Sections">{links}</nav></header>'
        f'<main><section id="words" class="words"><h2>In plain words</h2>{words}</section>{parts}</main>'
        f"<footer>{foot}</footer></body></html>\n"
    )

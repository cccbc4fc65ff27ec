"""The phase diagram as an HTML page that needs no network, with the values under the pointer."""

from __future__ import annotations

import json

from ...traces.html_page import markup, source_of
from .diagram import Diagram, Picture
from .svg import BOTTOM, LEFT, RIGHT, TOP, PlotArea, svg

_SCRIPT = """
const d=JSON.parse(document.getElementById("data").textContent),s=document.querySelector("svg"),
o=document.getElementById("tip"),N=["compute","memory","dispatch"];
s.addEventListener("pointermove",e=>{const m=s.getScreenCTM().inverse(),
p=new DOMPoint(e.clientX,e.clientY).matrixTransform(m),[l,t,r,b]=d.plot,low=d.low;
if(p.x<l||p.x>r||p.y<t||p.y>b){o.hidden=true;return}
const kv=(p.x-l)/(r-l)*d.mostKv,tk=Math.max(0,low+(b-p.y)/(b-t)*(d.mostTokens-low)),
near=(a,v)=>a.reduce((q,x,i)=>Math.abs(x-v)<Math.abs(a[q]-v)?i:q,0),
i=near(d.tokens,tk),j=near(d.kv,kv),c=d.cells[i][j];if(!c){o.hidden=true;return}
const w=c.slice(1),n=w.indexOf(Math.max(...w));
const f=x=>x.toLocaleString("en",{maximumFractionDigits:0});
o.textContent=`${f(2**d.tokens[i])} tokens behind ${f(2**d.kv[j])}: ${f(c[0])} tok/s, ${N[n]}\\n`+
N.map((k,q)=>`${k} ${w[q]} %`).join("   ");o.hidden=false;
o.style.left=Math.min(e.clientX+16,innerWidth-o.offsetWidth-8)+"px";
o.style.top=Math.min(e.clientY+16,innerHeight-o.offsetHeight-8)+"px"});
s.addEventListener("pointerleave",()=>{o.hidden=true});
"""
_PAGE_STYLE = (
    "html,body{margin:0;min-height:100%;background:#0e1013}svg{display:block;margin:auto;"
    "width:min(100vw,158vh);height:auto}#tip{position:fixed;padding:7px 11px;background:#0e1013ee;"
    "color:#e8e8e4;border:1px solid #33383f;border-radius:7px;font:13px system-ui,sans-serif;"
    "white-space:pre;pointer-events:none}"
)


def page(picture: Picture) -> str:
    """An HTML page with the picture and the values under the pointer."""
    drawing = svg(picture)
    style = f"default-src 'none'; style-src 'unsafe-inline'; script-src '{source_of(_SCRIPT)}'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{style}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{markup(picture.title)}</title><style>{_PAGE_STYLE}</style></head><body>\n{drawing}"
        f'<div id="tip" hidden></div><script type="application/json" id="data">'
        f"{json.dumps(_cells(picture.diagram), separators=(',', ':'))}</script>"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _cells(d: Diagram) -> dict[str, object]:
    """Every second point of the grid: speed, and the three shares in per cent."""
    rows, cols = range(0, len(d.tokens), 2), range(0, len(d.kv), 2)
    cells = [
        [
            None
            if not d.inside[row, col]
            else [
                float(f"{d.rates[row, col]:.4g}"),
                *(round(100 * float(d.shares[n, row, col])) for n in range(3)),
            ]
            for col in cols
        ]
        for row in rows
    ]
    plot = PlotArea(d)
    return {
        "plot": [LEFT, TOP, RIGHT, BOTTOM],
        "low": plot.low,
        "mostKv": plot.most_kv,
        "mostTokens": plot.most_tokens,
        "tokens": [round(float(d.tokens[row]), 4) for row in rows],
        "kv": [round(float(d.kv[col]), 4) for col in cols],
        "cells": cells,
    }

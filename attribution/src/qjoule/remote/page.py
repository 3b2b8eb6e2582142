# SPDX-License-Identifier: Apache-2.0
"""The agent's page: one HTML file that requests snapshots from where it came from, nothing else.

It holds no data. Scripts insert what arrives as text, never as markup.
"""

from __future__ import annotations

from importlib.resources import files

from qjoule.report.page import policy

_REPORT = files("qjoule.report").joinpath("vendor")
_OWN = files("qjoule.remote").joinpath("static")


def page() -> tuple[bytes, tuple[str, ...]]:
    """The page, and the headers that it needs."""
    plot = _REPORT.joinpath("uPlot-1.6.32.min.js").read_text(encoding="utf-8").strip()
    own = _OWN.joinpath("live.js").read_text(encoding="utf-8").strip()
    style = "\n".join(
        one.read_text(encoding="utf-8")
        for one in (_REPORT.joinpath("uPlot-1.6.32.min.css"), _OWN.joinpath("live.css"))
    ).strip()
    html = _OWN.joinpath("live.html").read_text(encoding="utf-8")
    for name, text in (("STYLE", style), ("PLOT", plot), ("OWN", own)):
        html = html.replace(f"@{name}@", text)
    more = "connect-src 'self'; img-src data:; frame-ancestors 'none'"
    allowed = f"{policy([plot, own], style)}; {more}"
    headers = (
        f"Content-Security-Policy: {allowed}",
        "Referrer-Policy: no-referrer",
        "X-Frame-Options: DENY",
    )
    return html.encode(), headers

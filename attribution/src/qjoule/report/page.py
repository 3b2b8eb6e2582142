# SPDX-License-Identifier: Apache-2.0
"""Renders the page: template, data and scripts in one HTML file that makes no requests.

The Content-Security-Policy in its head allows only this file's own scripts and style, by their
hashes. Data is a JSON block, which scripts insert as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from qjoule import __version__

#: In loading order.
VENDORED = ("uPlot-1.6.32.min.js", "d3-hierarchy-3.1.2.min.js", "tanstack-table-core-8.21.3.min.js")
OWN_SCRIPTS = ("base.js", "power.js", "icicle.js", "detail.js", "table.js", "compare.js", "main.js")
STYLES = ("vendor/uPlot-1.6.32.min.css", "static/page.css")
LICENCES = ("uPlot-LICENSE.txt", "d3-hierarchy-LICENSE.txt", "tanstack-table-core-LICENSE.txt")

_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


def page(data: Mapping[str, Any], about: Sequence[Mapping[str, Any]], title: str) -> str:
    """Returns the whole file. `about`: the always visible facts of each trace
    (`page_data.about`)."""
    return rendered(
        *("page.html", VENDORED, LICENCES, OWN_SCRIPTS),
        style="\n".join(read(name) for name in STYLES),
        title=title,
        data=data,
        about=about,
        studies=data.get("studies", ()),
        comparisons=data.get("comparisons", ()),
    )


def rendered(
    template: str,
    vendored: Sequence[str],
    licences: Sequence[str],
    own: Sequence[str],
    *,
    style: str,
    data: Mapping[str, Any],
    last: str = "",
    **values: object,
) -> str:
    """Renders a template with vendored scripts, ours (`own`, then `last`), and data."""
    from jinja2 import Environment, FunctionLoader  # noqa: PLC0415 (an extra: see the command)

    environment = Environment(
        loader=FunctionLoader(lambda name: read(f"template/{name}")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    scripts = [script(f"vendor/{name}") for name in vendored]
    own_scripts = (script(f"static/{name}") for name in own)
    scripts.append("\n".join(["'use strict';", *own_scripts, *([last] if last else ())]))
    return environment.get_template(template).render(
        version=__version__,
        policy=policy(scripts, style),
        data=block(data),
        scripts=scripts,
        style=style,
        licences="\n\n".join(read(f"vendor/{name}").strip() for name in licences),
        vendored=", ".join(name.partition(".min")[0] for name in vendored),
        **values,
    )


def block(data: Mapping[str, Any]) -> str:
    """Returns JSON that cannot end the script element around it, nor be parsed as markup."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def policy(scripts: Sequence[str], style: str) -> str:
    """Returns a Content-Security-Policy for these scripts and this style; no request is allowed."""
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def script(name: str) -> str:
    text = _SOURCE_MAP.sub("", read(name)).strip()
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError(f"{name} would end the element that it stands in")
    return text


def read(name: str) -> str:
    return files("qjoule.report").joinpath(name).read_text(encoding="utf-8")

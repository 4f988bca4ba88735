"""The pages of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noisychannel.pages import Page, asset, document
from noisychannel.serve.reference import reference_body

HERE = "noisychannel.serve.page"
SCRIPTS = ("elements.js", "ranking.js", "outputs.js", "alignments.js", "tree.js", "view.js", "main.js")


def main_page() -> Page:
    """The page at /."""
    styles, scripts = (asset(HERE, "page.css"),), tuple(asset(HERE, name) for name in SCRIPTS)
    return Page.of(document("noisychannel", asset(HERE, "page.html"), styles=styles, scripts=scripts))


def reference_page(schema: Mapping[str, Any], address: str) -> Page:
    """The page at /docs of a server with this address."""
    body = reference_body(schema, address)
    return Page.of(document("noisychannel: JSON interface", body, styles=(asset(HERE, "page.css"),)))

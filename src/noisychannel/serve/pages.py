"""The pages of a server: documents with their own policy, so that a browser runs nothing that is not in them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noisychannel.pages import asset, document
from noisychannel.serve.reference import reference_body

HERE = "noisychannel.serve.page"
SCRIPTS = ("elements.js", "ranking.js", "outputs.js", "alignments.js", "tree.js", "view.js", "main.js")


@dataclass(frozen=True)
class Page:
    """A document, and the content security policy that lets it do what it needs and nothing else."""

    html: str
    policy: str

    @staticmethod
    def of(html: str) -> Page:
        scripts = " ".join(_hashes("script", html)) or "'none'"
        policy = {
            "default-src": "'none'",
            "script-src": scripts,
            "style-src": " ".join(_hashes("style", html)),
            "connect-src": "'self'",
            "img-src": "data:",
            "form-action": "'none'",
            "base-uri": "'none'",
            "frame-ancestors": "'none'",
        }
        return Page(html, "; ".join(f"{name} {value}" for name, value in policy.items()))


def main_page() -> Page:
    """The page at /."""
    styles, scripts = (asset(HERE, "page.css"),), tuple(asset(HERE, name) for name in SCRIPTS)
    return Page.of(document("noisychannel", asset(HERE, "page.html"), styles=styles, scripts=scripts))


def reference_page(schema: Mapping[str, Any], address: str) -> Page:
    """The page at /docs of a server with this address."""
    body = reference_body(schema, address)
    return Page.of(document("noisychannel: JSON interface", body, styles=(asset(HERE, "page.css"),)))


def _hashes(element: str, html: str) -> list[str]:
    """What a policy calls the content of each such element without attributes."""
    found = re.findall(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
    digests = (hashlib.sha256(text.encode("utf-8")).digest() for text in found)
    return [f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests]

"""Documents that a server sends, with a policy of their own: a browser runs nothing that is not in them."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass


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


def _hashes(element: str, html: str) -> list[str]:
    """What a policy calls the content of each such element without attributes."""
    found = re.findall(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
    digests = (hashlib.sha256(text.encode("utf-8")).digest() for text in found)
    return [f"'sha256-{base64.b64encode(digest).decode('ascii')}'" for digest in digests]

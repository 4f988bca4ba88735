"""What all pages for people share: one HTML document without external assets, its style, data inside it, and charts."""

from noisychannel.pages.document import asset, document, embedded_json, escape
from noisychannel.pages.policy import Page

__all__ = ["Page", "asset", "document", "embedded_json", "escape"]

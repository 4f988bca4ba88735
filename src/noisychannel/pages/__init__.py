"""What all pages for people share: one HTML document without external assets, its style, data inside it, and charts."""

from noisychannel.pages.document import asset, document, embedded_json, escape

__all__ = ["asset", "document", "embedded_json", "escape"]

"""Chinese punctuation: TVsub's training text has hardly any, its official sets and news have it."""

from __future__ import annotations

SENTENCE_PUNCTUATION = frozenset(".,?!;:…。，、？！；：．")
"""What is removed. Quotes, brackets and the dot between parts of a name stay: the training text has them."""


def without_punctuation(text: str) -> str:
    """A segmented sentence without the tokens that are sentence punctuation; unchanged if nothing would be left."""
    kept = [token for token in text.split() if not SENTENCE_PUNCTUATION.issuperset(token)]
    return " ".join(kept) or text

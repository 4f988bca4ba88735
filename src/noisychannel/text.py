"""From text to symbols and back: characters, whitespace words, or sentencepiece subwords."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from noisychannel.arguments import Count
from noisychannel.errors import BadInputError, missing_extra

Units = Literal["characters", "words", "subwords"]
DIGIT = re.compile(r"\d")


@dataclass(kw_only=True)
class TextConfig:
    """How one side's text becomes symbols.

    Args:
        units: What a symbol is: a character, a word (split at whitespace) or a subword (sentencepiece).
        lowercase: Convert the text to lower case first.
        digits_to_hash: Replace every digit by '#' first.
        remove_spaces: Remove all whitespace first, for text in which it only marks where words were found, such as
            segmented Chinese. Not for units of words.
        min_count: Symbols that are rarer in the training data become UNK.
        max_size: The most symbols to keep, by frequency. For subwords, how many to train.
        sentencepiece: A sentencepiece model to use instead of training one.
        max_length: The longest sequence in symbols, without EOS. Longer ones are dropped or truncated (too_long).
    """

    units: Units = "characters"
    lowercase: bool = False
    digits_to_hash: bool = False
    remove_spaces: bool = False
    min_count: Count = 1
    max_size: Count | None = None
    sentencepiece: str | None = None
    max_length: Count | None = None


class Splitter(Protocol):
    """A way to split a normalised text into symbols."""

    def split(self, text: str) -> list[str]: ...

    def join(self, symbols: Sequence[str]) -> str: ...


class Characters:
    def split(self, text: str) -> list[str]:
        return list(text)

    def join(self, symbols: Sequence[str]) -> str:
        return "".join(symbols)


class Words:
    def split(self, text: str) -> list[str]:
        return text.split()

    def join(self, symbols: Sequence[str]) -> str:
        return " ".join(symbols)


class Subwords:
    """Sentencepiece. ``model`` is the serialised model, which a run stores."""

    def __init__(self, model: bytes, where: str) -> None:
        if not model:
            raise BadInputError(f"{where}: not a sentencepiece model (it is empty)")
        self.model = model
        try:
            self.processor = _sentencepiece().SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError) as error:
            raise BadInputError(f"{where}: not a sentencepiece model ({error})") from error

    def split(self, text: str) -> list[str]:
        pieces: list[str] = self.processor.encode(text, out_type=str)
        return pieces

    def join(self, symbols: Sequence[str]) -> str:
        text: str = self.processor.decode_pieces(list(symbols))
        return text

    @staticmethod
    def train(texts: Iterable[str], size: int, where: str) -> Subwords:
        """Train on at most a million sampled texts, so that memory is bounded."""
        model = io.BytesIO()
        broken: list[Exception] = []
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=_noting(texts, broken), model_writer=model, vocab_size=size, hard_vocab_limit=False,
                character_coverage=1.0, normalization_rule_name="identity", input_sentence_size=1_000_000,
                max_sentence_length=1_000_000, bos_id=-1, eos_id=-1, minloglevel=2, num_threads=1,
            )  # fmt: skip
        except RuntimeError as error:
            if broken:
                raise broken[0] from None
            reason = str(error).strip().splitlines()[-1]
            raise BadInputError(f"{where}: sentencepiece could not train {size} subwords ({reason})") from error
        return Subwords(model.getvalue(), where)


def _noting(texts: Iterable[str], broken: list[Exception]) -> Iterator[str]:
    """The same texts. An error while reading them is recorded: sentencepiece does not say which one it was."""
    try:
        yield from texts
    except Exception as error:
        broken.append(error)
        raise


def normalise(text: str, config: TextConfig) -> str:
    """The preprocessing of the paper, as configured."""
    if config.lowercase:
        text = text.lower()
    if config.digits_to_hash:
        text = DIGIT.sub("#", text)
    if config.remove_spaces:
        text = "".join(text.split())
    return text


def make_splitter(config: TextConfig, texts: Iterator[str], where: str) -> Splitter:
    """The splitter of a configuration. ``texts`` (normalised) are read only if subwords are trained."""
    match config.units:
        case "characters":
            return Characters()
        case "words":
            return Words()
        case "subwords" if config.sentencepiece is not None:
            try:
                with open(config.sentencepiece, "rb") as file:
                    return Subwords(file.read(), config.sentencepiece)
            except OSError as error:
                raise BadInputError(f"{where}.sentencepiece: {config.sentencepiece}: {error.strerror}") from error
        case "subwords":
            return Subwords.train(texts, config.max_size or 8000, where)


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise missing_extra("sentencepiece", "subwords", "units: subwords") from None
    return sentencepiece

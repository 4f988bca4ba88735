"""Outputs as texts: of a whole input, and of an input that is still arriving.

Every model scores a word outside its vocabulary as UNK. In the text of an output of words, UNK is replaced by the input
word at the position at which the direct model emitted it, or at which the attention of the proposing model looks most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noisychannel.data.codec import Codec, placeholders
from noisychannel.decode.hypothesis import Hypothesis
from noisychannel.decode.memory import Refuse
from noisychannel.decode.online import OnlineDecoder
from noisychannel.decode.parts import together_or_alone
from noisychannel.decode.scorers import attends, best_alignments
from noisychannel.decode.settings import SearchSettings
from noisychannel.decode.terms import Ids
from noisychannel.ids import EOS, UNK
from noisychannel.text import normalise


class Output(NamedTuple):
    """One output as text, with its scores and alignments."""

    text: str
    hypothesis: Hypothesis

    @property
    def confidence(self) -> float | None:
        """The probability that it is right, calibrated on dev; None if the system has no such model, and for outputs
        that were given instead of searched for."""
        return self.hypothesis.confidence

    @property
    def unknown(self) -> tuple[int, ...]:
        """The positions of symbols that were scored as UNK. In an output of words, these words are the copied ones.

        Positions count the symbols of the hypothesis, also those that leave no trace in the text.
        """
        return tuple(j for j, symbol in enumerate(self.hypothesis.tokens) if symbol == UNK)


class PartialOutput(NamedTuple):
    """What is known of the output when some of the input has been read."""

    text: str
    """The best output so far."""
    stable: str
    """The beginning of it that can no longer change."""


class Speller:
    """From the ids of outputs to their texts."""

    def __init__(self, input_codec: Codec, output_codec: Codec, proposer: Any) -> None:
        """``proposer``: the model that proposes; words can be copied if it has alignments, or attention."""
        self.input_codec, self.output_codec, self.proposer = input_codec, output_codec, proposer
        units = {input_codec.config.units, output_codec.config.units}
        self.copies = units == {"words"} and (hasattr(proposer, "viterbi") or attends(proposer))
        """Whether UNK is replaced by a word of the input."""
        self.placeholders = placeholders(output_codec.config)

    def words(self, text: str) -> list[str]:
        """The words of an input as an output has them: as they are written, but for what the output side normalises."""
        return [normalise(word, self.output_codec.config) for word in text.split()] if self.copies else []

    def spell(
        self,
        texts: Sequence[str],
        inputs: Sequence[Ids],
        found: Sequence[Sequence[Hypothesis]],
        settings: SearchSettings,
        refuse: Refuse | None = None,
    ) -> list[list[Output]]:
        """The outputs of some inputs. ``inputs``: the ids of ``texts``, with their features and EOS.

        ``refuse`` is called for an input with an output whose alignment needs too much memory; such an input gets no
        outputs.
        """
        return together_or_alone(
            lambda part: self._spell(texts[part], inputs[part], found[part], settings), len(texts), refuse
        )

    def _spell(
        self,
        texts: Sequence[str],
        inputs: Sequence[Ids],
        found: Sequence[Sequence[Hypothesis]],
        settings: SearchSettings,
    ) -> list[list[Output]]:
        pairs = [(n, hypothesis) for n, best in enumerate(found) for hypothesis in best]
        copied = self.copied_words(
            [self.words(text) for text in texts], inputs, [n for n, _ in pairs], [h for _, h in pairs], settings
        )
        outputs: list[list[Output]] = [[] for _ in texts]
        for (n, hypothesis), words in zip(pairs, copied, strict=True):
            text = self.output_codec.decode(hypothesis.tokens, words)
            outputs[n].append(Output(text, hypothesis))
        return outputs

    def copied_words(
        self,
        words: Sequence[Sequence[str]],
        inputs: Sequence[Ids],
        of_input: Sequence[int],
        hypotheses: Sequence[Hypothesis],
        settings: SearchSettings,
    ) -> list[dict[int, str]]:
        """For each hypothesis the words to copy, by their position in the output.

        An output that did not end is aligned as if it had. Only hypotheses with UNK and without an alignment are asked
        about. EOS copies the word to its left; a feature, and a placeholder for an unknown word, copy nothing.
        ``of_input``: the place of each hypothesis's input among ``words`` and ``inputs``.
        """
        copied: list[dict[int, str]] = [{} for _ in hypotheses]
        if not self.copies:
            return copied
        rows = [row for row, h in enumerate(hypotheses) if UNK in h.tokens and words[of_input[row]]]
        missing = [row for row in rows if hypotheses[row].alignment is None]
        pairs = [inputs[of_input[row]] for row in missing], [(*hypotheses[row].tokens, EOS) for row in missing]
        found = dict(zip(missing, best_alignments(self.proposer, *pairs, settings), strict=True)) if missing else {}
        for row in rows:
            n, tokens = of_input[row], hypotheses[row].tokens
            features = len(inputs[n]) - 1 - len(words[n])
            for j, (symbol, i) in enumerate(zip(tokens, hypotheses[row].alignment or found[row], strict=False)):
                if symbol == UNK and i >= features:
                    word = words[n][min(i - features, len(words[n]) - 1)]
                    copied[row] |= {} if word in self.placeholders else {j: word}
        return copied


class OnlineText:
    """One text that arrives in pieces; made by ``NoisyChannel.online``."""

    def __init__(self, speller: Speller, decoder: OnlineDecoder, settings: SearchSettings) -> None:
        self.speller, self.decoder, self.settings = speller, decoder, settings
        self.output = PartialOutput("", "")
        self._words: list[str] = []
        self._ids: list[int] = []
        self._fixed: dict[int, str] = {}
        """Copied words that are stable, by their position in the output: a later alignment does not change them."""

    def read(self, piece: str) -> PartialOutput:
        """Read on: one or several characters, or words if the run was trained on words or subwords."""
        decode, words = self.speller.output_codec.decode, self.speller.words(piece)
        for n, symbol in enumerate(self.speller.input_codec.encode(piece)[:-1]):
            progress = self.decoder.read(symbol)
            self._ids.append(symbol)
            self._words += words[n : n + 1]
            so_far = Hypothesis.of(progress.tokens, progress.score, {"direct": 0.0}, len(progress.tokens), False)
            (copied,) = self._copied([so_far])
            self._fixed |= {j: word for j, word in copied.items() if j < progress.stable}
            stable = progress.tokens[: progress.stable]
            self.output = PartialOutput(decode(progress.tokens, copied), decode(stable, copied))
        return self.output

    def finish(self, n_best: int = 1) -> list[Output]:
        """The text has ended: its best outputs."""
        best = self.decoder.finish(n_best)
        decode = self.speller.output_codec.decode
        return [
            Output(decode(hypothesis.tokens, words), hypothesis)
            for hypothesis, words in zip(best, self._copied(best), strict=True)
        ]

    def _copied(self, hypotheses: Sequence[Hypothesis]) -> list[Mapping[int, str]]:
        """The words that each output of the input so far copies."""
        zeros = [0] * len(hypotheses)
        copied = self.speller.copied_words([self._words], [[*self._ids, EOS]], zeros, hypotheses, self.settings)
        return [words | self._fixed for words in copied]

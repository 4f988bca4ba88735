"""Back-translation: unpaired outputs with inputs drawn from the channel model, as further training pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from noisychannel.devices import choose_device
from noisychannel.ids import UNK
from noisychannel.models import SSNT
from noisychannel.runs import RunDirectory

BATCH = 4096
"""Outputs whose inputs are drawn together."""
TRIES = 5
"""How often an input is drawn at most, until one succeeds."""
LONGER = 8
"""How many symbols longer than the longest output of its batch an input may be."""
UNKNOWN = "<unk>"
"""No vocabulary has it, so it is unknown when it is read again."""


def back_translate(
    run: Path,
    outputs: Sequence[str],
    device: str,
    seed: int = 1,
    features: Sequence[Sequence[str]] | None = None,
    longest: int | None = None,
    unknown: bool = False,
) -> list[tuple[str, str]]:
    """Pairs of an input, drawn from the channel p(input | output) of a run, and its output.

    A drawn input fails if it does not end, is empty, or has symbols that are not text. An output all of whose inputs
    fail is left out. ``features``: those of each output, if the channel was trained with them. ``longest``: the most
    symbols of an input, EOS included; if not given, a few more than the longest output of its batch has. ``unknown``:
    an input may have unknown symbols, which are written as ``UNKNOWN``; else such an input fails.
    """
    directory = RunDirectory(run)
    input_codec, output_codec = directory.codecs()
    where = choose_device(device)
    channel = directory.load_model("channel", where)
    assert isinstance(channel, SSNT)
    first_symbol = len(input_codec) - len(input_codec.symbols)
    torch.manual_seed(seed)
    pairs: list[tuple[str, str]] = []
    asked = list(zip(outputs, features or [()] * len(outputs), strict=True))
    for start in range(0, len(asked), BATCH):
        waiting = asked[start : start + BATCH]
        for _ in range(TRIES):
            ids = [torch.tensor(output_codec.encode(output, tags)) for output, tags in waiting]
            padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(where)
            lengths = torch.tensor([len(x) for x in ids])
            drawn, sizes = channel.sample(padded, lengths, max_length=longest or padded.shape[1] + LONGER)
            failed = []
            for one, tokens, size in zip(waiting, drawn.tolist(), sizes.tolist(), strict=True):
                symbols = tokens[: size - 1] if size else []
                copied = {j: UNKNOWN for j, symbol in enumerate(symbols) if symbol == UNK} if unknown else {}
                if symbols and all(symbol >= first_symbol or j in copied for j, symbol in enumerate(symbols)):
                    pairs.append((input_codec.decode(symbols, copied), one[0]))
                else:
                    failed.append(one)
            waiting = failed
            if not waiting:
                break
    return pairs

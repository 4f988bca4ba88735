"""The entry point: find the command, run it, and turn every error into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 bad usage or bad input, 128 and the number of a signal that asked to stop (SIGTERM 143,
SIGHUP 129; ctrl-C is 1). NOISYCHANNEL_DEBUG=1 shows tracebacks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

from noisychannel import __version__
from noisychannel.cli.standard_streams import claim_streams, is_output_error, say, settle_output
from noisychannel.cli.stopping import exit_code, leaving, signal_of, stopping_in_order
from noisychannel.errors import BadInputError, Interrupted, NoisyChannelError, did_you_mean, shortened


class Command(NamedTuple):
    """What a user is told about a command."""

    purpose: str
    interrupted: str = "nothing was written"
    """What is left when it is interrupted."""
    memory: tuple[str, ...] = ()
    """The options that decide how much memory it takes; for keys of many sections, their last parts."""


RESUMES = "finished work is kept, and repeating the command resumes the rest"
LINES_ARE_WHOLE = "every line printed so far is complete"
SEARCH = (
    "--batch-size", "--k1", "--k2", "--n-best", "--lm-proposals", "--max-length", "--max-growth", "--memory",
)  # fmt: skip

COMMANDS = {
    "demo": Command("train, tune and evaluate on German nouns, in a few minutes", RESUMES),
    "fit": Command("from pairs and a list of words to a tuned run in one command", RESUMES, ("--jobs",)),
    "train": Command(
        "train the direct, channel and language model (or some of them) into a run directory",
        "repeating the command resumes the training",
        (
            "batch_size",
            "batch_symbols",
            "hidden_size",
            "num_layers",
            "embedding_size",
            "max_size",
            "max_length",
            "jobs",
        ),
    ),
    "tune": Command(
        "choose the weights of each system on the dev data",
        "the systems tuned so far are in weights.json, and the run's default system is as it was",
        (*SEARCH, "--limit"),
    ),
    "evaluate": Command(
        "decode a test set with every system and print one table",
        memory=("--batch-size", "--k1", "--k2", "--samples"),
    ),
    "report": Command(
        "write one page about a run: curves, systems, weights, errors, alignments",
        memory=("--batch-size", "--limit", "--samples"),
    ),
    "decode": Command(
        "print the best outputs of inputs, with any of the systems",
        f"{LINES_ARE_WHOLE}; with --output, repeat the command with --resume",
        (*SEARCH, "--max-symbols"),
    ),
    "score": Command(
        "print log-probabilities and alignments of pairs under the models of a run",
        LINES_ARE_WHOLE,
        ("--batch-size", "--max-symbols"),
    ),
    "serve": Command(
        "serve runs on a port: a page to try them in a browser, and a JSON interface",
        "no request is waiting",
        ("--batch-size", "--queue", "--max-symbols", "--max-n-best", "--max-inputs"),
    ),
    "reproduce": Command("run the experiments of the paper, with every row of their tables", RESUMES, ("--jobs",)),
    "prefer": Command(
        "let people compare two systems blindly, and count what they say", "every rating stored so far is kept"
    ),
    "bench": Command("measure time and memory of the loss, training steps and decoding on this machine"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with stopping_in_order():
        return _run(words, debug=os.environ.get("NOISYCHANNEL_DEBUG", "0") not in ("", "0"))


def _run(words: list[str], debug: bool) -> int:
    try:
        claim_streams()
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except NoisyChannelError as error:
        if debug:
            raise
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt as error:
        number = signal_of(error)
        how = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
        known = COMMANDS.get(words[0]) if words else None
        if isinstance(error, Interrupted) and not error.kept:
            known = None
        return _complain(how if known is None else f"{how}; {known.interrupted}", exit_code(number))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except OSError as error:
        if debug:
            raise
        if isinstance(error, BrokenPipeError):  # nobody is told that the reader of our output is gone
            settle_output()
            return 1
        if is_output_error(error):
            return _complain(f"standard output: cannot be written ({error.strerror})", 1)
        return _complain(f"{error.filename or 'input/output'}: {error.strerror or error}", 1)
    except MemoryError:
        return _complain(_out_of_memory(words), 1)
    except Exception as error:
        if debug:
            raise
        # The errors of torch, on a CPU and on a GPU.
        if "can't allocate memory" in str(error) or "out of memory" in str(error):
            return _complain(_out_of_memory(words), 1)
        return _complain(
            f"internal error ({type(error).__name__}: {error}); set NOISYCHANNEL_DEBUG=1 for a traceback", 1
        )


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"noisychannel {__version__}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        raise BadInputError(f"unknown command {shortened(name)}{did_you_mean(name, COMMANDS)}")
    # Waiting threads should sleep: on a shared machine, spinning makes everything many times slower. torch reads this
    # when it is loaded, and the processes that train inherit it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Imported here because torch takes a second to load, and --help should not.
    with leaving(lambda: False):
        run: Callable[[list[str]], int] = import_module(f"noisychannel.cli.{name}").run
    return run(words[1:])


def _out_of_memory(words: Sequence[str]) -> str:
    """What to lower: first the options that were given, then the others that matter."""
    known = {option.removeprefix("--"): option for option in COMMANDS[words[0]].memory}
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    named = {word: word.removeprefix("--").replace("-", "_").rpartition(".")[2] for word in given}
    first = [word for word, key in named.items() if key in known]
    others = [option for key, option in known.items() if key not in named.values()]
    advice = [f"lower {' or '.join(first)}"] if first else []
    advice += [f"{'or' if first else 'lower'} one of {', '.join(others)}"] if others else []
    return f"out of memory; {', '.join(advice) or 'free some, or use a machine with more'}"


def _usage() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {command.purpose}" for name, command in COMMANDS.items())
    return (
        "usage: noisychannel COMMAND …        (see noisychannel COMMAND --help)\n\n"
        f"Sequence transduction with few pairs and many unpaired outputs.\n\ncommands:\n{commands}"
    )


def _complain(message: str, code: int) -> int:
    settle_output()
    say(f"noisychannel: {' '.join(message.split())}")
    return code

"""The entry point: find the command, run it, and turn every error into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 bad usage or bad input. NOISYCHANNEL_DEBUG=1 shows tracebacks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from noisychannel import __version__
from noisychannel.errors import BadInputError, NoisyChannelError, did_you_mean

COMMANDS = {
    "demo": "train, tune and evaluate on German nouns, in a few minutes",
    "train": "train the direct, channel and language model (or some of them) into a run directory",
    "tune": "choose the weights of each system on the dev data",
    "evaluate": "decode a test set with every system and print one table",
    "decode": "print the best outputs of inputs, with any of the systems",
    "score": "print log-probabilities and alignments of pairs under the models of a run",
    "reproduce": "run the experiments of the paper, with every row of their tables",
    "bench": "measure time and memory of the loss, training steps and decoding on this machine",
}


OUT_OF_MEMORY = (
    "out of memory; use smaller batches (batch_size, batch_symbols), a smaller max_length or hidden_size, "
    "or fewer processes (--jobs)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = os.environ.get("NOISYCHANNEL_DEBUG", "0") not in ("", "0")
    try:
        return _dispatch(words)
    except NoisyChannelError as error:
        if debug:
            raise
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second ctrl-C must not disturb the exit
        return _complain("interrupted; finished work is kept, and repeating the command resumes a training", 1)
    except BrokenPipeError:
        # The reader of our output is gone. Print nothing, and keep Python from flushing again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as stop:
        return int(stop.code or 0)
    except OSError as error:
        if debug:
            raise
        return _complain(f"{error.filename or 'input/output'}: {error.strerror or error}", 1)
    except MemoryError:
        return _complain(OUT_OF_MEMORY, 1)
    except Exception as error:
        if debug:
            raise
        # The errors of torch, on a CPU and on a GPU.
        if "can't allocate memory" in str(error) or "out of memory" in str(error):
            return _complain(OUT_OF_MEMORY, 1)
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
        known = ", ".join(COMMANDS)
        raise BadInputError(f"unknown command {name!r}{did_you_mean(name, COMMANDS)} The commands are {known}")
    # Waiting threads should sleep: on a shared machine, spinning makes everything many times slower. torch reads this
    # when it is loaded, and the processes that train inherit it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Imported here because torch takes a second to load, and --help should not.
    run: Callable[[list[str]], int] = import_module(f"noisychannel.cli.{name}").run
    return run(words[1:])


def _usage() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items())
    return (
        "usage: noisychannel COMMAND …        (see noisychannel COMMAND --help)\n\n"
        f"Sequence transduction with few pairs and many unpaired outputs.\n\ncommands:\n{commands}"
    )


def _complain(message: str, code: int) -> int:
    print(f"noisychannel: {' '.join(message.split())}", file=sys.stderr)
    return code

"""The entry point: find the command, run it, and turn whatever goes wrong into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 bad usage or bad input. NOISYCHANNEL_DEBUG=1 shows tracebacks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from noisychannel import __version__
from noisychannel.errors import BadInputError, NoisyChannelError

COMMANDS = {
    "demo": "train, tune and evaluate on German nouns from nothing, in a few minutes",
    "train": "train direct, channel and language model (or any of them) into a run directory",
    "tune": "choose the weights of each system on the dev data",
    "evaluate": "decode a test set with every system and print one table",
    "decode": "the best outputs of given inputs, by any of the systems",
    "score": "log-probabilities and alignments of given pairs under the models of a run",
    "reproduce": "the experiments of the paper, every row of their tables",
    "bench": "time and memory on this machine: the loss, training steps, decoding",
}


OUT_OF_MEMORY = (
    "out of memory; make batches (batch_size, batch_symbols), lengths (max_length) or hidden_size smaller, "
    "or let fewer processes share it (--jobs)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = os.environ.get("NOISYCHANNEL_DEBUG", "0") not in ("", "0")
    try:
        return _dispatch(words)
    except NoisyChannelError as error:
        if debug:
            raise
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not disturb the way out
        return _complain("interrupted; whatever was finished is kept, and a training resumes when repeated", 1)
    except BrokenPipeError:
        # The reader of our output has gone; say nothing, and keep Python from trying once more at exit.
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
        # torch's own errors of this kind, on a CPU and on a GPU.
        if "can't allocate memory" in str(error) or "out of memory" in str(error):
            return _complain(OUT_OF_MEMORY, 1)
        return _complain(f"internal error ({type(error).__name__}: {error}); NOISYCHANNEL_DEBUG=1 shows where", 1)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"noisychannel {__version__}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        raise BadInputError(f"unknown command {name!r}; the commands are {', '.join(COMMANDS)}")
    # Threads that wait should sleep: on a machine that is shared with others, spinning makes everything many times
    # slower. Read when torch is loaded, and inherited by the processes that train.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Imported now and not above: torch takes a second, and --help should not.
    run: Callable[[list[str]], int] = import_module(f"noisychannel.cli.{name}").run
    return run(words[1:])


def _usage() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items())
    return (
        "usage: noisychannel COMMAND …        (noisychannel COMMAND --help explains one)\n\n"
        f"Sequence transduction with few pairs and many unpaired outputs.\n\ncommands:\n{commands}"
    )


def _complain(message: str, code: int) -> int:
    print(f"noisychannel: {' '.join(message.split())}", file=sys.stderr)
    return code

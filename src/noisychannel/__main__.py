"""``python -m noisychannel``: the same as the program ``noisychannel``, for torchrun and accelerate launch."""

from noisychannel.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())

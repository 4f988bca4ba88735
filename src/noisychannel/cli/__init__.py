"""The program ``noisychannel``: one module a command."""

"""Speed and memory on the present hardware: ``noisychannel bench``."""

"""The experiments of the paper and ours: a framework for tables of systems, and the experiments that use it.

design       what is fixed before any data is read: rows in blocks, metrics, comparisons, published figures
experiment   a design with its data (items) and its runs (training)
measuring    tune, decode and choose (tuning, decoding, choosing), each once (cache)
scores       scores, intervals and p-values from outputs alone, for any metric
blocks       the files of rows that were measured together; running makes them, results merges them
estimates    how long a block will take; claims: whether the statements of a design hold
report       Markdown; plots: learning curves
content      dropped content and copying; lengths: premature ends; search_errors: what a search has missed
sentences    what experiments on pairs of sentences share
comparison   all tables of the paper beside ours, and what the channel adds (contrasts)
registry     the experiments by name, for ``noisychannel reproduce``
"""

from noisychannel.experiments.design import Design, Plot
from noisychannel.experiments.experiment import Experiment
from noisychannel.experiments.items import Item, Part
from noisychannel.experiments.rows import SystemRow
from noisychannel.experiments.settings import MeasuringSettings, Setup

__all__ = ["Design", "Experiment", "Item", "MeasuringSettings", "Part", "Plot", "Setup", "SystemRow"]

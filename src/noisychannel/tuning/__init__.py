"""Tuning the weights of the objective on a development set: decode, merge the n-best lists, optimise, decode again."""

from noisychannel.systems import SYSTEMS, FreeWeight, System
from noisychannel.tuning.lines import line_search
from noisychannel.tuning.loop import TuningResult, TuningStep, tune
from noisychannel.tuning.pool import CandidateArrays, CandidatePool
from noisychannel.tuning.search import optimise

__all__ = [
    "SYSTEMS",
    "CandidateArrays",
    "CandidatePool",
    "FreeWeight",
    "System",
    "TuningResult",
    "TuningStep",
    "line_search",
    "optimise",
    "tune",
]

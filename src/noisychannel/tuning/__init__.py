"""Tuning the weights of the objective on a development set: decode, merge the n-best lists, optimise, decode again."""

from noisychannel.tuning.candidates import CandidatePool, Candidates
from noisychannel.tuning.lines import line_search
from noisychannel.tuning.loop import Step, Tuned, tune
from noisychannel.tuning.search import optimise
from noisychannel.tuning.systems import SYSTEMS, FreeWeight, System

__all__ = [
    "SYSTEMS",
    "CandidatePool",
    "Candidates",
    "FreeWeight",
    "Step",
    "System",
    "Tuned",
    "line_search",
    "optimise",
    "tune",
]

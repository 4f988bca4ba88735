"""Morphological inflection, the paper's third experiment (Figure 1), and the same systems on two shared tasks."""

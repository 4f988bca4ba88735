"""Chinese to English, the paper's second experiment, and German to English (Multi30k)."""

"""What holds for every test."""

import os
import signal

# Some virtual machines announce AMX but do not allow it: oneDNN's bfloat16 products then die of an illegal instruction.
# Set before torch is imported, and inherited by every process that a test starts.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# One thread in each process, and threads that wait sleep: pytest-xdist already keeps every core busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A shell starts background jobs with ctrl-C ignored, which every process that a test starts would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

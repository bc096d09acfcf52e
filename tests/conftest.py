"""What holds for every test.

One thread of torch: the last bits depend on how many there are, and two processes of pytest share
the two cores of CI.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before anything imports torch

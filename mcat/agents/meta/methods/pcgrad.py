"""PCGrad (Yu et al. 2020) on SAC: gradients of tasks that disagree are projected.

All tasks share the networks of one SAC, which is told by a one-hot code which task it is; each task
has its own temperature. With g_i the gradient of task i's loss, for every i and the other tasks j
in an order drawn anew: if g·g_j < 0, g ← g - (g·g_j / |g_j|²) g_j, where g starts as g_i and the g_j
stay as they were. The step is along the mean of the results, for critics and actor alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mcat.agents.learner import Batch, Imitation, Losses
from mcat.agents.meta.algorithm import TaskSet
from mcat.agents.meta.methods.coded import Coded
from mcat.agents.meta.methods.configs import PCGradConfig, PCGradRun
from mcat.agents.meta.methods.surgery import project
from mcat.agents.meta.run_config import RunConfig
from mcat.agents.networks import descend
from mcat.agents.sac import SAC

"""The one training loop: every network in crlearn is trained here.

An `Objective` says how weights are drawn and what the loss is; `train` does the rest: minibatch
steps in a jitted scan, restarts under one `vmap`, early stopping on held-out loss, best weights,
divergence caught, checkpoints that resume to the same bits, progress.
"""

from crlearn.train._chunk import Objective, Revising
from crlearn.train._loop import Settings, Training, compared, finite_check, train

__all__ = ["Objective", "Revising", "Settings", "Training", "compared", "finite_check", "train"]

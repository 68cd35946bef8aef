"""A user's callback that asks to stop, on one rank only."""

from __future__ import annotations

import os

from mindspore.train import Callback

STEP = 3


class StopOnRankOne(Callback):
    """What an early stopping does that looks at a rank's own numbers."""

    def on_train_step_end(self, run_context):
        """After each step."""
        if os.environ.get("RANK_ID") == "1" and run_context.original_args().cur_step_num == STEP:
            run_context.request_stop()

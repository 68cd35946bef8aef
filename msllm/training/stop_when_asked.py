"""Ends a run after the step in which its launcher asks for it, with a checkpoint: `msllm launch --save-on-stop`."""

from __future__ import annotations

from typing import Any

from mindspore.train import Callback

from msllm.parallel.progress import stop_asked


class StopWhenAsked(Callback):
    """Ranks learn of the wish at different steps; that they stop at the same one is the work of request_stop()."""

    def on_train_step_end(self, run_context: Any) -> None:
        """Look whether the launcher has asked."""
        if stop_asked():
            run_context.request_stop()

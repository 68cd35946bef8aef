"""MindSpore's callback protocol around our loop, so that callbacks written for `Model.train` work unchanged."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from msllm.errors import InputError, MsllmError, RunError
from msllm.training.agreement import Agreement


class CallbackRunner:
    """Calls every hook of MindSpore callbacks with the context that `Model.train` would give them.

    `net_outputs` is the loss tensor, `cur_step_num` the global step, `train_dataset_element` this rank's batch; one epoch is
    the whole run. A callback that calls `run_context.request_stop()` ends the run after the step, with a checkpoint; on
    several ranks one such call ends it on all. Every rank has the same callbacks.
    """

    def __init__(self, callbacks: Sequence[Any], model: Any, step_cell: Any, train_steps: int, agreement: Agreement):
        from mindspore import context
        from mindspore.train.callback import RunContext
        from mindspore.train.callback._callback import InternalCallbackParam

        params = InternalCallbackParam()
        params.train_network = step_cell
        params.network = model
        params.optimizer = step_cell.optimizer
        params.epoch_num = params.cur_epoch_num = 1
        params.batch_num = train_steps
        params.device_number = agreement.size
        params.dataset_sink_mode = False
        params.mode = "train"
        params.parallel_mode = context.get_auto_parallel_context("parallel_mode")
        params.list_callback = list(callbacks)
        params.cur_step_num = 0
        params.net_outputs = None
        self._callbacks = list(callbacks)
        self._params = params
        self._context = RunContext(params)
        self._agreement = agreement

    def call(self, hook: str) -> None:
        """`on_train_begin`, `on_train_epoch_begin`, `on_train_step_begin` and their `_end`s.

        Raises:
            RunError: a callback raised, with its exception as the cause.
        """
        for callback in self._callbacks:
            try:
                getattr(callback, hook)(self._context)
            except MsllmError:
                raise
            except Exception as error:
                kind = type(callback)
                raise RunError(
                    f"callback {kind.__module__}:{kind.__qualname__} failed in {hook}, step {self._params.cur_step_num}: "
                    f"{_described(error)}; its traceback is in the log of this rank"
                ) from error

    def step_begin(self, step: int, tokens: Any) -> None:
        """Before the step with this number, counted from 1, on this rank's batch `tokens`."""
        self._params.cur_step_num = step
        self._params.train_dataset_element = (tokens,)
        self.call("on_train_step_begin")

    def step_end(self, loss: Any) -> bool:
        """After the step; whether a callback asked to stop, on whichever rank."""
        self._params.net_outputs = loss
        self.call("on_train_step_end")
        # A rank that stopped alone would leave the others waiting in their next AllReduce.
        return bool(self._callbacks) and self._agreement.any(bool(self._context.get_stop_requested()))


def _described(error: BaseException) -> str:
    """An exception and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def load_callback(path: str) -> Any:
    """An instance of the callback class `package.module:Class`.

    Raises:
        InputError: no such module or class, not a MindSpore Callback, or its constructor needs arguments.
    """
    from mindspore.train import Callback

    module_name, _, class_name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that nothing in the current folder hides an installed module
    try:
        made = getattr(importlib.import_module(module_name), class_name)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"--callback {path}: {error}; expected package.module:Class, a class without arguments"
        ) from None
    except Exception as error:
        raise InputError(f"--callback {path}: cannot be made: {_described(error)}") from None
    if not isinstance(made, Callback):
        raise InputError(f"--callback {path}: {class_name} must derive from mindspore.train.Callback")
    return made

"""Steps that left the weights as they were, as the host learns of them."""

from __future__ import annotations


class SkippedSteps:
    """Counts them over looks from the host, each of which covers the same number of steps: more than one in a data sink.

    Args:
        steps: of a look.
        total: skipped in the run so far.
        in_a_row: of those, the ones since the last update.
    """

    def __init__(self, steps: int, total: int = 0, in_a_row: int = 0):
        self.steps, self.total, self.in_a_row = steps, total, in_a_row

    def look(self, total: int, finite: bool) -> int:
        """How many of the steps of this look were skipped, where `total` were in the run and the last one was `finite`."""
        skipped, self.total = total - self.total, total
        if finite:
            self.in_a_row = 0
        elif skipped == self.steps:
            self.in_a_row += skipped
        else:
            self.in_a_row = 1  # the last one; whether the one before it was skipped too is not known
        return skipped

    def updated(self, step: int) -> int:
        """The last step that is known to have changed the weights, where `step` was the last of the last look."""
        return step - -(-self.in_a_row // self.steps) * self.steps

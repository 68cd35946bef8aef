"""The choice of the next token. Imports no MindSpore."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn from the logits.

    temperature 0 takes the most likely token; otherwise logits are divided by it, all but the `top_k` most likely and all
    beyond the smallest set of probability `top_p` (Holtzman et al. 2020) are left out, and one is drawn.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def problems(self) -> list[str]:
        """What is out of range."""
        found = []
        if not 0 <= self.temperature < float("inf"):
            found.append(f"temperature ({self.temperature}) must be 0 (the most likely token) or more")
        if self.top_k is not None and self.top_k < 1:
            found.append(f"top_k ({self.top_k}) must be at least 1")
        if not 0 < self.top_p <= 1:
            found.append(f"top_p ({self.top_p}) must be above 0 and at most 1")
        return found

    def choose(self, logits: np.ndarray, random: np.random.Generator) -> int:
        """The next token. logits: (V,) float32."""
        if self.temperature == 0:
            return int(np.argmax(logits))
        # Below the maximum, so that the smallest temperature makes nothing larger than 0.
        with np.errstate(over="ignore"):
            scores = (logits.astype(np.float64) - logits.max()) / self.temperature
        order = np.argsort(-scores, kind="stable")
        if self.top_k is not None:
            order = order[: self.top_k]
        weights = np.exp(scores[order])
        probabilities = weights / weights.sum()
        if self.top_p < 1:
            # The first token whose cumulative probability reaches top_p is the last one kept.
            kept = int(np.searchsorted(np.cumsum(probabilities), self.top_p)) + 1
            order, probabilities = order[:kept], probabilities[:kept]
            probabilities = probabilities / probabilities.sum()
        return int(random.choice(order, p=probabilities))

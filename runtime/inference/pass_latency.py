"""What passes of an engine take, by their number of tokens.

r(n) is how much longer a pass of n tokens takes than one of one: the time of the passes that there
were; before the first it is what the machine's limits say.
"""

from __future__ import annotations

from collections.abc import Sequence

SLOWER = 1.1  # r before it was measured, times what the limits say
WEIGHT = 0.1  # of the newest time among those of its kind
MOST_ROWS = 128  # of a pass, for which r is known; beyond it every row costs as much as the next


class PassLatency:
    """Measured pass times of an engine, by number of tokens.

    Attributes:
        steps: passes of one token so far; step_s: what one takes, as a running mean.
        least_s: what the limits allow it; 0: nobody has said so yet.
    """

    def __init__(self) -> None:
        self.step_s = self.least_s = 0.0
        self.steps = 0
        self._ratio: dict[int, float] = {}
        self._prior: list[float] = []

    def set_limits(self, limits: Sequence[float]) -> None:
        """Seconds that the machine's limits allow passes of 1 to `MOST_ROWS` tokens."""
        self._prior = [1.0, 1.0, *(SLOWER * max(1.0, time / limits[0]) for time in limits[1:])]
        self.least_s = limits[0]

    def step(self, seconds: float) -> None:
        """A pass of one token took so long."""
        self.steps += 1
        # One that was held up by another process must not make all others look cheap.
        seconds = min(seconds, 2 * self.step_s) if self.step_s else seconds
        self.step_s += (seconds - self.step_s) * max(WEIGHT, 1 / self.steps)

    def several(self, tokens: int, seconds: float) -> None:
        """A pass of `tokens` tokens did, of one sequence or of several."""
        if not self.step_s or tokens > MOST_ROWS:
            return
        ratio = max(1.0, min(seconds / self.step_s, 2.0 * tokens))
        known = self._ratio.get(tokens)
        self._ratio[tokens] = ratio if known is None else known + (ratio - known) * 2 * WEIGHT

    def forget(self) -> None:
        """Believe half of what was measured, and half of what the limits say."""
        self._ratio = {n: (r + self._prior[n]) / 2 for n, r in self._ratio.copy().items()}

    def ratio(self, tokens: int) -> float:
        """r(tokens): as measured, else from the nearest that was, else from the limits."""
        if tokens <= 1:
            return 1.0
        if tokens > MOST_ROWS:
            return self.ratio(MOST_ROWS) * tokens / MOST_ROWS
        known = self._ratio.get(tokens)
        if known is not None:
            return known
        prior = self._prior[tokens]
        if not self._ratio:
            return prior
        near = min(tuple(self._ratio), key=lambda n: abs(n - tokens))
        return max(1.0, prior * self._ratio[near] / self._prior[near])

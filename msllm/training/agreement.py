"""What the ranks of a run must know of each other."""

from __future__ import annotations

from mindspore import Tensor
from mindspore import dtype as mstype
from mindspore.ops import operations as P

from msllm.parallel.world import World


class Agreement:
    """Numbers that ranks tell each other. Each call waits for the same call of all other ranks.

    The sum is called as an operator and not inside a cell: in semi-automatic parallel mode a graph would have to be given
    strategies. float32 is what MindSpore sums over CPU ranks.
    """

    def __init__(self, world: World):
        self.size = world.size
        self._is_main = world.is_main
        self._all_reduce = P.AllReduce() if world.size > 1 else None

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank."""
        return self._sum(int(flag)) > 0

    def of_main(self, value: int) -> int:
        """The main rank's `value`, up to 2 ** 24."""
        return self._sum(value if self._is_main else 0)

    def _sum(self, value: int) -> int:
        if self._all_reduce is None:
            return value
        return int(self._all_reduce(Tensor(value, mstype.float32)).asnumpy())

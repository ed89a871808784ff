"""A set of offsets that takes a bit for each where they are dense: a drained page leaves millions of them behind."""

_BITS = 8  # a block is an int of 256 bits


class Offsets:
    """Offsets of one partition."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}

    def __len__(self) -> int:
        """How many blocks there are: what it costs, not what it holds."""
        return len(self._blocks)

    def __contains__(self, offset: int) -> bool:
        return self._blocks.get(offset >> _BITS, 0) >> (offset & 255) & 1 == 1

    def add(self, offset: int) -> None:
        """Twice is as good as once."""
        block = offset >> _BITS
        self._blocks[block] = self._blocks.get(block, 0) | 1 << (offset & 255)

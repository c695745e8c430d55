"""A series of numbered readings that never takes more than a fixed room."""

from __future__ import annotations


class Thinned:
    """Readings in order, at most ``most``: when it is full every second one goes, and later ones come half as often.

    The first reading always stays. ``numbers`` tells which readings are left.
    """

    def __init__(self, most: int = 512) -> None:
        self.numbers: list[int] = []
        self.values: list[int] = []
        self._most = most
        self._stride = 1
        self._first: int | None = None

    def wants(self, number: int) -> bool:
        """Tell whether the reading of this number would be kept; ask before a reading that costs something."""
        return self._first is None or (number - self._first) % self._stride == 0

    def add(self, number: int, value: int) -> None:
        """Keep a reading, if its number is one that is kept; numbers rise."""
        if not self.wants(number):
            return
        if self._first is None:
            self._first = number
        self.numbers.append(number)
        self.values.append(value)
        if len(self.numbers) >= self._most:
            self._stride *= 2
            kept = [at for at, one in enumerate(self.numbers) if (one - self._first) % self._stride == 0]
            self.numbers = [self.numbers[at] for at in kept]
            self.values = [self.values[at] for at in kept]

    def clear(self) -> None:
        """Forget everything and start anew."""
        self.numbers, self.values = [], []
        self._stride, self._first = 1, None

"""A capacity of which one recipient leaves room for another. Independent of HTTP."""

from __future__ import annotations

from gateway.limits.admission import Admission


class FairAdmission:
    """A capacity with a queue, of which each recipient may take all but a reserve for others."""

    def __init__(self) -> None:
        self._of_all = Admission(0, queue_length=0, queue_seconds=0)
        self._of_recipients: dict[str, Admission] = {}
        """Of those that have a cost, or wait for one."""
        self._queue_length, self._queue_seconds = 0, 0.0
        self._own_capacity = 0
        self._is_one_at_a_time = False

    def configure(self, capacity: int, *, reserve: int, queue_length: int, queue_seconds: float) -> None:
        """Change the limits. A recipient's capacity is at least the reserve. Admitted costs stay."""
        self._queue_length, self._queue_seconds = queue_length, queue_seconds
        self._own_capacity = max(reserve, capacity - reserve)
        self._of_all.configure(capacity, queue_length=queue_length, queue_seconds=queue_seconds)
        for admission in self._of_recipients.values():
            admission.configure(self._own_capacity, queue_length=queue_length, queue_seconds=queue_seconds)

    def run_one_at_a_time(self, is_on: bool) -> None:
        """Admit costs only one at a time, or all that fit again."""
        self._is_one_at_a_time = is_on
        for admission in (self._of_all, *self._of_recipients.values()):
            admission.run_one_at_a_time(is_on)

    @property
    def used(self) -> int:
        """The admitted costs."""
        return self._of_all.used

    def enter_at_once(self, recipient: str, cost: int) -> bool:
        """Take a cost. False: it has to wait, and takes nothing."""
        if not self._of_recipient(recipient).enter_at_once(cost):
            return False
        if self._of_all.enter_at_once(cost):
            return True
        self._leave_own(recipient, cost)
        return False

    async def enter(self, recipient: str, cost: int) -> bool:
        """Take a cost from the recipient's part, then from all, and wait in the queue of each.

        False: refused, and nothing is taken.
        """
        if not await self._of_recipient(recipient).enter(cost):
            return False
        has_entered = False
        try:
            has_entered = await self._of_all.enter(cost)
        finally:
            if not has_entered:
                self._leave_own(recipient, cost)
        return has_entered

    def add(self, recipient: str, cost: int) -> None:
        """Take a cost, whether it fits or not, for a recipient that has one."""
        self._of_all.used += cost
        self._of_recipients[recipient].used += cost

    def leave(self, recipient: str, cost: int) -> None:
        """Return what was taken."""
        self._of_all.leave(cost)
        self._leave_own(recipient, cost)

    def _of_recipient(self, recipient: str) -> Admission:
        admission = self._of_recipients.get(recipient)
        if admission is None:
            admission = self._of_recipients[recipient] = Admission(
                self._own_capacity, queue_length=self._queue_length, queue_seconds=self._queue_seconds
            )
            if self._is_one_at_a_time:
                admission.run_one_at_a_time(True)
        return admission

    def _leave_own(self, recipient: str, cost: int) -> None:
        admission = self._of_recipients[recipient]
        admission.leave(cost)
        if not admission.used and not admission.waiting:
            del self._of_recipients[recipient]

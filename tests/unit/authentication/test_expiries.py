"""The ends of tokens that are near, by the clock of the moment."""

from gateway.authentication.credential_table import Credential, Holder
from gateway.authentication.expiries import SOON_SECONDS, Expiries
from gateway.catalog.catalog import Recipient

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def holder(name: str, *ends_ms: int | None) -> Holder:
    recipient = Recipient(name, frozenset())
    tokens = (Credential(bytes([number]) * 32, recipient, end) for number, end in enumerate(ends_ms))
    return Holder(recipient, tuple(tokens), ())


def test_the_last_end_of_each_recipient_is_reported_while_it_is_near():
    clock = [NOW_MS]
    expiries = Expiries(lambda: clock[0])
    ends = (NOW_MS - DAY_MS, NOW_MS + DAY_MS)
    far = NOW_MS + (SOON_SECONDS + 1) * 1000
    holders = [
        holder("a", *ends),
        holder("b", *ends, None),
        holder("c", far),
        holder("d", NOW_MS),
        holder("e"),
    ]
    # By a clock that is ahead they have all ended. Until it is set right, nothing is near.
    clock[0] = NOW_MS * 2
    expiries.report_all(holders)
    assert expiries.soonest() == {}
    clock[0] = NOW_MS
    assert expiries.soonest() == {"a": (NOW_MS + DAY_MS) / 1000}
    clock[0] = far - 1
    assert expiries.soonest() == {"c": far / 1000}

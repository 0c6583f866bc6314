"""The facts of a request, as members of its line in the log."""

from copy import copy

from gateway.telemetry.request_record import RequestRecord


def test_members_are_made_once_and_a_copy_makes_its_own() -> None:
    record = RequestRecord(table="s.d.t", returned=20)
    made = record.members()
    assert made == ',"table":"s.d.t","returned":20'
    assert record.members() is made
    refused = copy(record)
    refused.refusal = "limit"
    assert refused.members() == f'{made},"refusal":"limit"'
    assert (record.members(), RequestRecord().members()) == (made, "")

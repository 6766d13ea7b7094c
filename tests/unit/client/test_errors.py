"""Every error reply becomes the exception a caller can act on."""

from __future__ import annotations

import pickle

import pytest

from holdfast.client import errors


@pytest.mark.parametrize(
    ("line", "kind", "family"),
    [
        ("NOREPL Not enough reachable nodes", errors.NoRepl, errors.Refused),
        ("NOREPL Timeout reached before replicating", errors.CopiesLate, errors.Unknown),
        ("NOREPL job removed (expired?) before", errors.CopiesLate, errors.Unknown),
        ("NOREPL The node that decides about its key could not be reached", errors.NoRepl, errors.Refused),
        ("PAUSED Queue paused in input, try later", errors.Paused, errors.Refused),
        ("MAXLEN Queue is already longer", errors.MaxLen, errors.Refused),
        ("OOM command not allowed", errors.OutOfMemory, errors.Refused),
        ("LEAVING This node is leaving", errors.Leaving, errors.Refused),
        ("LOADING reading the journal", errors.Loading, errors.Refused),
        ("MISCONF disk full", errors.Misconfigured, errors.Refused),
        ("ERR max number of clients reached", errors.TooManyClients, errors.Refused),
        ("UNREACHED the node that gave this lease cannot be reached", errors.Refused, errors.Refused),
        ("BADID Invalid Job ID format.", errors.BadId, errors.BadRequest),
        ("NOJOB Job not known", errors.NoJob, errors.BadRequest),
        ("TOOLATE Half of job TTL", errors.TooLate, errors.BadRequest),
        ("NOAUTH Authentication required.", errors.NotAllowed, errors.BadRequest),
        ("WRONGPASS invalid username-password pair", errors.NotAllowed, errors.BadRequest),
        ("ERR invalid password", errors.NotAllowed, errors.BadRequest),
        ("ERR syntax error", errors.BadRequest, errors.BadRequest),
        ("NEWCODE from a newer node", errors.BadRequest, errors.BadRequest),
        ("", errors.BadRequest, errors.BadRequest),
    ],
)
def test_code_and_text_are_kept_and_the_family_says_what_to_do(
    line: str, kind: type[errors.Error], family: type[errors.Error]
) -> None:
    error = errors.from_reply(line)
    assert type(error) is kind and isinstance(error, family)
    assert str(error) == line
    assert (error.code, error.text) == (line.partition(" ")[0], line.partition(" ")[2])


def test_errors_made_here_have_a_code_too() -> None:
    assert errors.Empty("nothing").code == "EMPTY"
    assert str(errors.Closed("it was closed")) == "CLOSED it was closed"


def test_an_error_survives_the_way_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(errors.from_reply("NEWCODE some text")))
    assert type(again) is errors.BadRequest and (again.code, again.text) == ("NEWCODE", "some text")

"""Both sides of a live merge make their keys from the token that they share."""

from __future__ import annotations

import pytest
import zmq

from rn50_advisor.advisor.merge.curve_keys import curve_keys
from rn50_advisor.advisor.model.errors import AdvisorError

TOKEN = b"a token of the job"


def test_the_same_token_makes_the_same_keys_and_a_pair_belongs_together() -> None:
    public, secret = curve_keys(TOKEN, "listener")
    assert (public, secret) == curve_keys(TOKEN, "listener")
    assert zmq.curve_public(secret) == public
    assert len(public) == len(secret) == 40
    assert TOKEN not in secret


def test_no_two_sides_and_no_two_tokens_share_a_key() -> None:
    made = [curve_keys(token, side) for token in (TOKEN, TOKEN[:-1], b"") for side in ("listener", "sender")]  # type: ignore[arg-type]
    assert len({key for pair in made for key in pair}) == 12


def test_a_library_that_cannot_encrypt_is_an_error_with_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda what: False)
    with pytest.raises(AdvisorError, match="cannot encrypt") as caught:
        curve_keys(TOKEN, "sender")
    assert caught.value.hint.startswith("pip install")

"""The documents of `bench`, `compare`, `fleet` and `triage`: one object each, which every output shows."""

"""The documents of `bench`, `compare`, `fleet` and `triage`. Each is one object that all outputs show."""

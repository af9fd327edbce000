"""Runs the job and records it: the launcher passes everything through, the agent polls rings and probes. No analysis here."""

"""Host probes, one file per source. A probe reports numbers or a gap with its reason, never an opinion."""

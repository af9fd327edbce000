"""Everything that measures: `rank` rides in the job's processes, `host` runs in the advisor."""

"""All measurements: `rank` runs inside the job's processes, `host` runs in the advisor."""

"""Types of all JSON documents that ranks and the agent write, for writers and readers."""

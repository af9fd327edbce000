"""What jobs share. Every folder of jobs links to this one, because a script finds only what lies beside it."""

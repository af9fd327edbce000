"""What `compare` needs of each run, and by how much runs differ."""

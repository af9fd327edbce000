"""The run file: one SQLite database in a folder of its own. It keeps numbers and knows nothing of their meaning."""

"""The run file: one SQLite database in a folder of its own. It stores numbers and does not interpret them."""

"""The steps of the training thread: its marks, their meaning, and the row of each step."""

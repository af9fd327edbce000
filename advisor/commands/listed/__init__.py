"""The list of runs on the screen: which files and programs stand behind it."""

"""The node during the run: cores, memory, threads and the interpreter lock."""

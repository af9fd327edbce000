"""What the node did meanwhile: cores, memory, threads, the interpreter lock."""

"""Backward passes: the graph that autograd built for them, the time of its nodes, and passes that go through it again."""

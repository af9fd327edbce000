"""Wording of quantities, gains, loaders, GPU waits and facts, shared by analysis, reports and the screen."""

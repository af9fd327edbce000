"""Wording of quantities, loaders, waits and facts, shared by analysis, reports and the screen."""

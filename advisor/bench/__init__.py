"""Trains a known model in several settings, each under the advisor, and reports the speeds and the bottlenecks."""

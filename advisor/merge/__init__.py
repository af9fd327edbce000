"""Merges a job's runs on several hosts: finds the runs that belong together, aligns their clocks, joins them in one recording."""

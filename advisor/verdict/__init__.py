"""Turns an analysis into a report: runs the rules, separates causes from symptoms, picks the verdict."""

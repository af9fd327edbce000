"""From an analysis to a report: runs the rules, separates causes from symptoms, picks the verdict."""

"""Labelled faults on real training jobs: how often the advisor's verdict is right, and how well its predictions hold.

    python -m samples.faults            # all of them, about an hour on two cores
    python -m samples.faults --list

A scenario is a job, a real fault (never a mocked metric), and the truth about it. Nothing in here may know a threshold of a rule.
"""

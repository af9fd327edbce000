"""Labelled faults on real training jobs: how often the advisor's verdict is right, and how well its predictions hold.

    python -m samples.faults            # the usual scenarios, about 75 minutes on two cores
    python -m samples.faults --list

A scenario is a job, a real fault (never a mocked metric), and the truth about it. No code here may depend on a rule's threshold.
"""

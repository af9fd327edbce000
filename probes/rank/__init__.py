"""The recorder that rides in each rank. It must never raise into the job, block it, synchronise its GPU or change its numbers.

Standard library only; Python >= 3.9. In the job it is loaded under a private name, so a job's own `probes` package is not in its way.
"""

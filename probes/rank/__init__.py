"""The recorder inside each rank. It must never raise into the job, block it, synchronise its GPU or change its numbers.

Standard library only; Python >= 3.9. The job loads it under a private name, so that it cannot collide with the job's own package `probes`.
"""

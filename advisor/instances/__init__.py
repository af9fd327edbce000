"""Identifies the cloud instance of a machine by its hardware, and lists what such an instance should have.

`match` needs only what the driver and the kernel report. Only `rn50_advisor.advisor.instances.metadata` asks the
metadata service of a provider.
"""

from rn50_advisor.advisor.instances.catalogue import Instance, Link, by_name, exactly, instances, match, only_one

__all__ = ["Instance", "Link", "by_name", "exactly", "instances", "match", "only_one"]

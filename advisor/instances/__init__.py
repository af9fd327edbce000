"""Which cloud instance a machine is, by what it holds, and what such an instance should have.

`match` needs nothing but what the driver and the kernel say; the metadata service of a provider is asked only by
`rn50_advisor.advisor.instances.metadata`.
"""

from rn50_advisor.advisor.instances.catalogue import Instance, Link, by_name, exactly, instances, match, only_one

__all__ = ["Instance", "Link", "by_name", "exactly", "instances", "match", "only_one"]

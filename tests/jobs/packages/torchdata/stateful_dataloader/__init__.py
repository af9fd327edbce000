"""Stands in for torchdata's StatefulDataLoader: modules, names and arguments as there."""

from .stateful_dataloader import StatefulDataLoader as StatefulDataLoader

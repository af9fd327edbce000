"""The parts of the screen: one file a panel."""

"""How quantities, loaders, waits and facts are worded. Shared by the analysis, the reports and the screen."""

"""Networks that do not learn, and whether the training thread gives them the same inputs again and again."""

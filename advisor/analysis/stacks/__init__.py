"""What stack samples of the training thread say."""

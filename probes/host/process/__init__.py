"""The processes of the job, as the kernel accounts for them."""

"""The GPUs of the job, as the driver and the recorder saw them."""

"""The trainer: a mixture-of-experts model, its data and optimizer, alone or as a peer of a job."""

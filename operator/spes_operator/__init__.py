"""The operator: places experts, reconciles SpesJobs, and runs them on one machine or many clusters."""

"""The operator: places experts, reconciles SpesJobs, runs them on one machine or many clusters."""

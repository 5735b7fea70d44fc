"""Who trains which experts: pure functions from peers, memory and speed to an ownership map.

`placement.place` decides, `capacity` turns memory into a number of experts, `explanation` says why,
and `costs` what a job takes in memory and traffic. Called by the hub's reconcile and by
`spes explain`.
"""

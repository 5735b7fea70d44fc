"""The training log: what each optimizer step has shown, for people and for plots."""

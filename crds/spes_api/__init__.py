"""Everything a person writes or reads: the four kinds of `spes.dev/v1alpha1`, as pydantic models.

Beside them what every program of SPES must do alike: errors, exit codes, the readiness file, files
with secrets. Needs pydantic and PyYAML only, so that light tools can read a SpesJob. Called by the
operator, the sync server and the trainer. Does no I/O but reading files in `loading`, and writing
them in `generate` and `private_files`.
"""

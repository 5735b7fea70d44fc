"""The mixture-of-experts transformer that peers train, and its losses (SPES, sections 3.2, 3.3)."""

"""The mixture-of-experts transformer that peers train, and its losses (SPES, section 4.1)."""

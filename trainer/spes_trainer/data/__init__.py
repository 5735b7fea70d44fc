"""From files to training sequences: documents, held-out split, order, the corpus as a whole."""

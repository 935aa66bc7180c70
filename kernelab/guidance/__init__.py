"""What to write instead: what users know from elsewhere, as tables of names and hints."""

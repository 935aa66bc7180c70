"""What is saved because somebody is about to overwrite it."""

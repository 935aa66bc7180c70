"""What names, values and annotations mean while a def is lowered."""

"""What views are made of: markup, text, pages, pictures, displays."""

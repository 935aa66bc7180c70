"""Building blocks of views: markup, text, pages, pictures, displays."""

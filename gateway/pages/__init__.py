"""Parts that every page of the server has: the style sheet, the icon, and times in words."""

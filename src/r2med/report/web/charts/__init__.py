"""Pictures as SVG, made on the server; their colours come from the style sheet, light or dark."""

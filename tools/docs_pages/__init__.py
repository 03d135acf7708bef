"""Pages made from code: each module has a function `pages` that gives paths and Markdown."""

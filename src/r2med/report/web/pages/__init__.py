"""One file a page: from what is asked to what its template shows. Nothing is computed here that others compute."""

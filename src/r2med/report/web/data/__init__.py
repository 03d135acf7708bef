"""What the pages are made from: results on disk, read once and kept in arrays."""

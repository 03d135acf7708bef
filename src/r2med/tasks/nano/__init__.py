"""Nano tasks: small pools that keep every positive, with ranked candidates beside them."""

"""Rows as they come: effects of covariates taken off, rows far out left out."""

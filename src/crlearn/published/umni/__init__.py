"""UMNI-CRL: linear mixing, interventions on unknown sets of latents."""

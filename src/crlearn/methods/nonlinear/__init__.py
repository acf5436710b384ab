"""Any smooth mixing, hard interventions: NonlinearInterventionCRL."""

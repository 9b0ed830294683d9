"""Systems of equations: inverses with their residuals, refinement, solutions."""

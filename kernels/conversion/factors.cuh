// FACTORS, a parameter of kernels that read rows scaled along k: the factors of their inner indices,
// powers of two or 0 (docs/definitions.md, section 10). Kernels that read rows as they are have none.
//
// Macro: INNER (0: rows are not scaled).
#pragma once

#if INNER
#define FACTORS , const double* __restrict__ factors
#else
#define FACTORS
#endif

// MFSDP_VECTOR_CLONES before a function compiles it for AVX-512, AVX2 and baseline x86-64; calls
// use the best version for the CPU. No version fuses multiplications and additions
// (-ffp-contract=off), so all give equal bits.
#pragma once

// Sanitizers are not ready yet when the loader chooses.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && \
    !defined(MFSDP_SANITIZED)
#define MFSDP_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define MFSDP_VECTOR_CLONES
#endif

// Check whether this processor has the instructions that a test of vectors is compiled for.
#pragma once

#if defined(__AVXVNNI__) && !defined(PYG_MODELLED)
#    include <cpuid.h>
#endif

inline bool can_run() {
#if defined(PYG_MODELLED)
    return true;  // emulated in plain C++
#elif defined(__AVXVNNI__)
    // Compilers learned the name of AVX-VNNI late. Bit 4 of EAX of leaf 7, subleaf 1.
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
#elif defined(__AVX512BF16__)
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
#elif defined(__AVX512VNNI__)
    return __builtin_cpu_supports("avx512vnni");
#elif defined(__AVX512F__)
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");  // and so it has F16C
#else
    return true;
#endif
}

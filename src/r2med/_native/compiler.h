/* What compilers do differently: vectors, inlining, prefetching, and several versions of a function for one machine.
 *
 * GCC and Clang have vectors as types. Other compilers (MSVC), and every one with R2_PORTABLE defined, get plain C
 * with the same results; that is slower where the compiler does not see the vectors by itself. So Lanes are only
 * added and multiplied by the functions below, never by + and *. */
#ifndef R2MED_COMPILER_H
#define R2MED_COMPILER_H

#include <string.h>

enum { LANES = 16 };

#if defined(__GNUC__) && !defined(R2_PORTABLE)

#define INLINE static inline __attribute__((always_inline))
#define PREFETCH(address) __builtin_prefetch(address)
typedef float Lanes __attribute__((vector_size(64)));

INLINE Lanes add(Lanes a, Lanes b) { return a + b; }
INLINE Lanes multiply(Lanes a, Lanes b) { return a * b; }

#else

#ifdef _MSC_VER
#define INLINE static __forceinline
#else
#define INLINE static inline
#endif
#define PREFETCH(address) ((void)(address))
typedef struct {
    float lane[LANES];
} Lanes;

INLINE Lanes add(Lanes a, Lanes b) {
    for (int i = 0; i < LANES; i++) a.lane[i] += b.lane[i];
    return a;
}

INLINE Lanes multiply(Lanes a, Lanes b) {
    for (int i = 0; i < LANES; i++) a.lane[i] *= b.lane[i];
    return a;
}

#endif

INLINE Lanes at(const float *values) {
    Lanes lanes;
    memcpy(&lanes, values, sizeof lanes);
    return lanes;
}

INLINE Lanes zeros(void) {
    Lanes lanes;
    memset(&lanes, 0, sizeof lanes);
    return lanes;
}

INLINE float total(Lanes lanes) {
    float parts[LANES];
    memcpy(parts, &lanes, sizeof parts);
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) parts[lane] += parts[lane + half];
    return parts[0];
}

/* On x86-64 a function can be compiled for wider vectors than the compiler counts on, with TARGET_256 or TARGET_512
 * before it, and called where r2_vector_bits says that the machine has them. The question is asked of the processor
 * itself: __builtin_cpu_supports needs a library that not every compiler brings. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(R2_PORTABLE)
#include <cpuid.h>

#define WIDE 1
#define TARGET_256 __attribute__((target("avx2,fma")))
#ifdef __clang__
#define TARGET_512 __attribute__((target("avx512f,avx512bw,fma")))
#define TARGET_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni,fma")))
#else /* which would use half the width, and Clang ignores the whole attribute for the last word */
#define TARGET_512 __attribute__((target("avx512f,avx512bw,fma,prefer-vector-width=512")))
#define TARGET_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni,fma,prefer-vector-width=512")))
#endif

/* 512 or 256 where processor and operating system both have vectors of that many bits, with fused multiply-add. */
INLINE int r2_vector_bits(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 12 & 1) || !(c >> 27 & 1)) return 0; /* FMA, XGETBV */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (b >> 16 & 1 && b >> 30 & 1 && (low & 0xe6) == 0xe6) return 512; /* AVX512F, AVX512BW */
    return b >> 5 & 1 ? 256 : 0;
}

/* Whether 512-bit vectors come with products of 16-bit numbers that are added to a sum in one step. */
INLINE int r2_has_vnni(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c >> 11 & 1;
}
#endif

#endif

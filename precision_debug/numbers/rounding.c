/* float32 as a narrower type holds it, and float32 that is off by a little: one pass each, without temporaries.
 *
 * Rounding is to nearest even, subnormals included (IEEE 754 binary16; bfloat16 is the upper half of binary32). What is
 * finite stays finite, at the type's largest number. "from" and "to" may be the same memory.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef SOURCE
#define SOURCE "unknown"
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__) && !defined(PLAIN)
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#elif defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 11 && !defined(__clang__) && !defined(PLAIN)
#define CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define CLONES
#endif

static inline __attribute__((always_inline)) uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline __attribute__((always_inline)) float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

CLONES void pd_round_half(const float *from, float *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t all = bits_of(from[i]), sign = all & 0x80000000u, u = all & 0x7fffffffu;
        uint32_t normal = (u + 0xfffu + ((u >> 13) & 1u)) & ~0x1fffu; /* 10 of 23 bits are kept */
        normal = normal > 0x477fe000u ? 0x477fe000u : normal;         /* 65504 */
        /* below 2^-14 the steps are 2^-24, which are those of float32 between 0.5 and 1 */
        uint32_t tiny = bits_of((float_of(u) + 0.5f) - 0.5f);
        uint32_t finite = u < 0x38800000u ? tiny : normal;
        to[i] = float_of(sign | (u >= 0x7f800000u ? u : finite));
    }
}

CLONES void pd_round_brain(const float *from, float *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t all = bits_of(from[i]), sign = all & 0x80000000u, u = all & 0x7fffffffu;
        uint32_t finite = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
        finite = finite > 0x7f7f0000u ? 0x7f7f0000u : finite;
        to[i] = float_of(sign | (u >= 0x7f800000u ? u : finite));
    }
}

/* Each element off by its share of the noise, which is used again and again from "start" on: of itself times "unit", or
 * of "step" where that is not 0. What is not finite stays as it is, and so does what has none of the bits in "low": the
 * narrow type holds it exactly. */
CLONES void pd_shake(const float *from, float *to, int64_t n, const float *noise, int64_t many, int64_t start, float unit,
                     float step, uint32_t low) {
    for (int64_t done = 0, at = start % many; done < n; at = 0) {
        int64_t some = n - done < many - at ? n - done : many - at;
        const float *x = from + done, *r = noise + at;
        float *y = to + done;
        if (step != 0.0f)
            for (int64_t i = 0; i < some; i++) {
                float off = x[i] + step * (unit * r[i]);
                y[i] = x[i] - x[i] == 0.0f ? off : x[i];
            }
        else
            for (int64_t i = 0; i < some; i++) {
                float off = x[i] + x[i] * (unit * r[i]);
                y[i] = (bits_of(x[i]) & low) && x[i] - x[i] == 0.0f ? off : x[i];
            }
        done += some;
    }
}

const char *pd_source(void) { return SOURCE; }

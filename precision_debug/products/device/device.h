/* What the kernels of compare.cu are made of: their one argument, the fields of an answer, types, and a warp's sums.
 *
 * The same text compiles for a processor, with one lane a warp and one warp a block, where a test runs the blocks one
 * after the other; see emulated.cpp.
 */
#pragma once

#if defined(__CUDACC_RTC__) || defined(__CUDACC__)
#define ON_GPU 1
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define SETTLING __launch_bounds__(1024)
#define RARELY static __device__ __noinline__
#ifndef RESIDENT
#define RESIDENT 16
#endif
#define BOUNDED __launch_bounds__(32, RESIDENT)
#define KERNEL extern "C" __global__ void
#define LANES 32
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define THREAD ((int)threadIdx.x)
#define THREADS ((int)blockDim.x)
#define SYNC() __syncthreads()
#define FENCE() __threadfence()
#define SHARED __shared__
typedef long long int64;
typedef unsigned int uint32;
typedef unsigned short uint16;
#define INF __int_as_float(0x7f800000)
#define BIG_INF __longlong_as_double(0x7ff0000000000000LL)
#else
#include <cmath>
#include <cstdint>
#include <cstring>
#define ON_GPU 0
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define RARELY static inline
#define SETTLING
#define BOUNDED
#define KERNEL extern "C" void
#define LANES 1
#define BLOCK block_number
#define BLOCKS block_count
#define THREAD 0
#define THREADS 1
#define SYNC()
#define FENCE()
#define SHARED static
typedef int64_t int64;
typedef uint32_t uint32;
typedef uint16_t uint16;
#define INF INFINITY
#define BIG_INF ((double)INFINITY)
static thread_local int block_number, block_count;
#endif

#include "held.h"

#define LANE (THREAD % LANES)
#define WARP (THREAD / LANES)
#define WARPS (THREADS / LANES)

enum Type { F32, F64, F16, BF16, I8, U8, I16, U16, I32, U32, I64, U64, BOOL };

/* The histogram of a sample's errors, by the top bits of float32. Many errors have the same few buckets: so many copies. */
#define BUCKET_BITS 18
#define BUCKETS (1 << (31 - BUCKET_BITS))
#define COPIES 16
#define RUN 32

/* Words of the scratch behind the copies. */
#define KNOWN (COPIES * BUCKETS) /* the required relative tolerance that any warp has found, as a float's bits */
#define FLAG (KNOWN + 1)         /* 1: float32 does not hold the answer */
#define DONE (KNOWN + 2)         /* warps of the float64 kernel that have ended */

/* Beyond this float64 does not hold every whole number, nor the difference of two. */
#define WHOLE 4503599627370496.0

struct Job {
    const void *base, *target;
    double *partial;  /* [FIELDS][rows], or [FIELDS][exact_rows] */
    uint32 *scratch;
    double *row;      /* FIELDS */
    void *extra;      /* of every element |t - b|, as float32 or float64; or BUCKETS counts of a sample; or nothing */
    int64 size;
    double atol, rtol;
    int base_type, target_type, either, equal_nan;
    int rows, exact_rows; /* warps that scan, and that read in float64 */
    int inner;            /* what a thread reads before its float32 sums are added up, in loads */
    int wide;             /* elements of one load */
    int runs;             /* of RUN elements, in the sample; 0: every error is kept */
    int wide_errors;      /* errors are kept as float64 */
    int forced;           /* nothing was scanned: float64 reads all */
};

/* By how they are added up. Of places: the place of the one before them; scans put a chunk's number there. */
#define SUMS(F)                                                                                                        \
    F(base_sum) F(target_sum) F(base_squares) F(target_squares) F(sum_abs) F(squares) F(sum_rel)                       \
    F(pair_base_squares) F(pair_target_squares) F(dot)                                                                 \
    F(finite) F(mismatched) F(special) F(overflow) F(subnormal) F(base_nan) F(base_inf) F(target_nan) F(target_inf)    \
    F(base_negative_inf) F(target_negative_inf)                                                                        \
    F(unheld) F(unequal)
#define LEAST(F) F(base_min) F(target_min) F(first_mismatch) F(first_infinite)
#define MOST(F) F(base_max) F(target_max) F(required_atol) F(required_rtol) F(max_abs) F(max_rel)
#define PLACES(F) F(max_abs_at) F(max_rel_at)

#define NUMBERED(name, ...) at_##name,
enum Field { SUMS(NUMBERED) METRICS(NUMBERED, NUMBERED) LEAST(NUMBERED) MOST(NUMBERED) PLACES(NUMBERED) at_exact, FIELDS };
#undef NUMBERED
#define FIRST_LEAST at_base_min
#define FIRST_MOST at_base_max
#define FIRST_PLACE at_max_abs_at

/* An index that no element has. */
#define NOWHERE 9.2e18

#if ON_GPU
DEVICE uint32 bits_of(float x) { return __float_as_uint(x); }
DEVICE float float_of(uint32 x) { return __uint_as_float(x); }
DEVICE float inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float half_of(uint16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
DEVICE bool any(bool here) { return __any_sync(0xffffffffu, here); }
DEVICE double from_lane(double x, int apart) { return __shfl_xor_sync(0xffffffffu, x, apart); }
DEVICE void add_one(uint32 *at) { atomicAdd(at, 1u); }
DEVICE uint32 count_up(uint32 *at) { return atomicAdd(at, 1u); }
DEVICE void raise(uint32 *at, uint32 to) { atomicMax(at, to); }
#else
DEVICE uint32 bits_of(float x) {
    uint32 bits;
    memcpy(&bits, &x, 4);
    return bits;
}
DEVICE float float_of(uint32 x) {
    float y;
    memcpy(&y, &x, 4);
    return y;
}
DEVICE float inverse(float x) { return 1.0f / x; }
DEVICE float half_of(uint16 x) {
    uint32 magnitude = x & 0x7fffu, sign = (uint32)(x & 0x8000u) << 16;
    if (magnitude < 0x400u)
        return float_of(sign | bits_of((float)magnitude * 0x1p-24f));
    return float_of(sign | ((magnitude << 13) + (magnitude >= 0x7c00u ? 224u << 23 : 112u << 23)));
}
DEVICE bool any(bool here) { return here; }
DEVICE double from_lane(double x, int) { return x; }
DEVICE void add_one(uint32 *at) { ++*at; }
DEVICE uint32 count_up(uint32 *at) { return (*at)++; }
DEVICE void raise(uint32 *at, uint32 to) { *at = to > *at ? to : *at; }
#endif

DEVICE bool is_finite(float x) { return (bits_of(x) & 0x7fffffffu) < 0x7f800000u; }

/* One element in float64, where that is rare: one text of it, since the driver compiles what it is given. */
RARELY double element_of(const void *from, int type, int64 at) {
    switch (type) {
    case F32: return ((const float *)from)[at];
    case F64: return ((const double *)from)[at];
    case F16: return half_of(((const uint16 *)from)[at]);
    case BF16: return float_of((uint32)((const uint16 *)from)[at] << 16);
    case I8: return ((const signed char *)from)[at];
    case U8: return ((const unsigned char *)from)[at];
    case I16: return ((const short *)from)[at];
    case U16: return ((const uint16 *)from)[at];
    case I32: return ((const int *)from)[at];
    case U32: return ((const uint32 *)from)[at];
    case I64: return (double)((const int64 *)from)[at];
    case U64: return (double)((const unsigned long long *)from)[at];
    default: return ((const unsigned char *)from)[at] != 0;
    }
}

/* |t - b| <= tolerance, exactly as the host decides it: the products are not contracted (--fmad=false). */
DEVICE bool passes(double d, double m, const Job &job) {
    double part = job.rtol * m;
    return job.either ? d <= job.atol || d <= part : d <= job.atol + part;
}

/* One row of all lanes' rows, in a fixed order. */
DEVICE void add_lanes(double *row) {
#pragma unroll 1
    for (int apart = 1; apart < LANES; apart *= 2) {
#pragma unroll
        for (int field = 0; field < at_max_abs; field++) {
            double other = from_lane(row[field], apart);
            if (field < FIRST_LEAST)
                row[field] += other;
            else if (field < FIRST_MOST)
                row[field] = other < row[field] ? other : row[field];
            else
                row[field] = other > row[field] ? other : row[field];
        }
#pragma unroll
        for (int place = FIRST_PLACE; place < at_exact; place++) {
            int field = place - FIRST_PLACE + at_max_abs;
            double value = from_lane(row[field], apart), at = from_lane(row[place], apart);
            if (value > row[field] || (value == row[field] && at < row[place]))
                row[field] = value, row[place] = at;
        }
    }
}

/* Start values of a row. */
DEVICE void start_row(double *row) {
#pragma unroll
    for (int field = 0; field < FIELDS; field++)
        row[field] = field < FIRST_LEAST ? 0.0 : field < FIRST_MOST ? BIG_INF : 0.0;
    row[at_base_max] = row[at_target_max] = -BIG_INF;
    row[at_max_abs] = row[at_max_rel] = -1.0;
    row[at_first_mismatch] = row[at_first_infinite] = row[at_max_abs_at] = row[at_max_rel_at] = NOWHERE;
}

/* Where run number `number` of the sample begins: one in each of so many equal stretches, by the golden ratio. */
DEVICE int64 run_start(const Job &job, int number) {
    double stretch = (double)job.size / job.runs, golden = number * 0.6180339887498949;
    double room = stretch - RUN > 0 ? stretch - RUN : 0;
    return (int64)(number * stretch + (golden - floor(golden)) * room);
}

/* One pass over two tensors that yields every sum, count, extreme and histogram of a comparison.
 *
 * Elements are widened block by block, to float where float holds every value of the type and to double elsewhere;
 * every error and every decision is made in double, exactly as numpy's float64 makes it. Hence no contraction to
 * fused multiply-adds and no reassociation outside the sums that "omp simd reduction" names: see hatch_build.py.
 *
 * Several short loops over a block that stays in the caches: one loop that does everything does not vectorise.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "held.h"

#ifndef SOURCE
#define SOURCE "unknown"
#endif

#define BLOCK 1024 /* a multiple of 8 */
#define RANKS 16
#define FEW 48 /* values that are sorted by insertion */
#define DOSE 512
#define BUCKETS (1 << 14)
#define INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 11 && !defined(__clang__) && !defined(PLAIN)
#define CLONED 1
#include <immintrin.h>
#if __GNUC__ >= 12
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#endif
#else
#define CLONED 0
#define CLONES
#endif

enum { F32, F64, F16, BF16, I8, U8, I16, U16, I32, U32, TABLE };

typedef struct {
    double atol, rtol;
    int32_t either, equal_nan;
} Tolerance;

/* numbers/native.py holds the same fields in the same order; totals.py says what they mean. */
typedef struct {
    int64_t base_nan, base_inf, target_nan, target_inf, fp16_overflow, fp16_subnormal;
    int64_t finite, mismatched, special, identical, kept;
    int64_t first_mismatch, max_abs_at, max_rel_at;
    double base_min, base_max, base_sum, base_squares;
    double target_min, target_max, target_sum, target_squares;
    double max_abs, max_rel, sum_abs, sum_rel, squares, pair_base_squares, pair_target_squares, dot;
    double required_atol, required_rtol;
#define COUNTED(name, ...) int64_t name;
#define SUMMED(name, ...) double name;
    METRICS(COUNTED, SUMMED)
#undef COUNTED
#undef SUMMED
} Totals;

typedef struct {
    const Tolerance *tolerance;
    uint32_t *histogram; /* 2 * BUCKETS counts, to be added up, or NULL */
    double *diffs;       /* room for every error, or NULL */
    Totals *totals;
    const char *next_base, *next_target; /* the block after this one, as it lies in memory */
    int base_width, target_width;
} Task;

/* Whether a block is finite throughout; if so, its extremes and its counts beyond and below FP16's normal range. */
typedef struct {
    int finite;
    int64_t overflow, subnormal;
    double low, high;
} Scan;

/* Sums of one side's finite elements. */
typedef struct {
    double sum, squares;
} Side;

/* Fetch elements [from, to) of the next block while this one is worked on. In small doses: the processor tracks only
 * a few dozen lines at a time, and by itself it does not look as far ahead as a block. */
INLINE void prefetch(const Task *task, int from, int to) {
    for (int at = from * task->base_width; at < to * task->base_width; at += 64)
        __builtin_prefetch(task->next_base + at);
    for (int at = from * task->target_width; at < to * task->target_width; at += 64)
        __builtin_prefetch(task->next_target + at);
}

INLINE int64_t bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE double double_of(int64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- widening ---- */

#if CLONED
static __attribute__((target("avx,f16c"))) void widen_half_f16c(const uint16_t *from, float *to, int n) {
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
    for (; i < n; i++)
        to[i] = _cvtsh_ss(from[i]);
}
#endif

INLINE void widen_half(const uint16_t *from, float *to, int n) {
#pragma omp simd
    for (int i = 0; i < n; i++) {
        uint32_t magnitude = from[i] & 0x7fffu, sign = (uint32_t)(from[i] & 0x8000u) << 16;
        uint32_t normal = (magnitude << 13) + (112u << 23);
        float tiny = (float)(int32_t)magnitude * 0x1p-24f;
        uint32_t subnormal;
        memcpy(&subnormal, &tiny, sizeof tiny);
        normal += magnitude >= 0x7c00u ? 112u << 23 : 0u;
        uint32_t result = sign | (magnitude < 0x400u ? subnormal : normal);
        memcpy(&to[i], &result, sizeof result);
    }
}

INLINE void widen_bfloat(const uint16_t *from, float *to, int n) {
#pragma omp simd
    for (int i = 0; i < n; i++) {
        uint32_t result = (uint32_t)from[i] << 16;
        memcpy(&to[i], &result, sizeof result);
    }
}

#define WIDEN(NAME, FROM, TO)                                                                                          \
    INLINE void NAME(const FROM *from, TO *to, int n) {                                                                \
        for (int i = 0; i < n; i++)                                                                                    \
            to[i] = (TO)from[i];                                                                                       \
    }
WIDEN(widen_i8, int8_t, float)
WIDEN(widen_u8, uint8_t, float)
WIDEN(widen_i16, int16_t, float)
WIDEN(widen_u16, uint16_t, float)
WIDEN(widen_i32, int32_t, double)
WIDEN(widen_u32, uint32_t, double)
WIDEN(widen_float, float, double)

static int64_t width(int type) {
    switch (type) {
    case F64:
        return 8;
    case F32:
    case I32:
    case U32:
        return 4;
    case F16:
    case BF16:
    case I16:
    case U16:
        return 2;
    default:
        return 1;
    }
}

static int needs_double(int type) { return type == F64 || type == I32 || type == U32; }

CLONES static const float *as_float(const void *from, int type, const float *table, float *buffer, int n) {
    switch (type) {
    case F32:
        return from;
    case F16:
#if CLONED
        if (__builtin_cpu_supports("f16c")) {
            widen_half_f16c(from, buffer, n);
            break;
        }
#endif
        widen_half(from, buffer, n);
        break;
    case BF16:
        widen_bfloat(from, buffer, n);
        break;
    case I8:
        widen_i8(from, buffer, n);
        break;
    case U8:
        widen_u8(from, buffer, n);
        break;
    case I16:
        widen_i16(from, buffer, n);
        break;
    case U16:
        widen_u16(from, buffer, n);
        break;
    default:
        for (int i = 0; i < n; i++)
            buffer[i] = table[((const uint8_t *)from)[i]];
    }
    return buffer;
}

CLONES static const double *as_double(const void *from, int type, const float *table, double *buffer, int n) {
    float narrow[BLOCK];
    switch (type) {
    case F64:
        return from;
    case I32:
        widen_i32(from, buffer, n);
        break;
    case U32:
        widen_u32(from, buffer, n);
        break;
    default:
        widen_float(as_float(from, type, table, narrow, n), buffer, n);
    }
    return buffer;
}

/* ---- the histogram: numbers/histogram.py tells which elements enter it ---- */

#define GOLDEN 0x9E3779B1u

/* Which of the eight elements from this one on enters; at is a multiple of 8. */
INLINE int lane(int64_t at) { return (int)((uint32_t)(at / 8) * GOLDEN >> 29); }

INLINE int64_t bucket(double diff) { return bits_of(diff) >> 49; }

/* The errors of a block without gaps. Two tables: equal errors in a row would wait for each other's counts. */
INLINE void count_errors(uint32_t *histogram, const double *diff, int64_t first, int n) {
    int start = 0;
    for (; start + 16 <= n; start += 16) {
        histogram[bucket(diff[start + lane(first + start)])]++;
        histogram[BUCKETS + bucket(diff[start + 8 + lane(first + start + 8)])]++;
    }
    for (; start < n; start += 8)
        if (start + lane(first + start) < n)
            histogram[bucket(diff[start + lane(first + start)])]++;
}

/* ---- the numbers of finite pairs ---- */

/* Where element i of a block of finite pairs lies in the whole tensor. */
INLINE int64_t place(const int32_t *map, int64_t first, int i) { return first + (map ? map[i] : i); }

INLINE double relative(double diff, double magnitude) { return diff / (magnitude + 1e-7); }

INLINE int passes(double diff, double magnitude, const Tolerance *tolerance, int either) {
    double part = tolerance->rtol * magnitude;
    return either ? (diff <= tolerance->atol) | (diff <= part) : diff <= tolerance->atol + part;
}

/* What the loop over the errors of a block does with the declared metrics; m_name, for a local name is the metric's. */
#define STARTED_COUNT(name, ...) int64_t m_##name = 0;
#define STARTED_SUM(name, ...) double m_##name = 0;
#define LISTED(name, ...) , m_##name
#define ADDED(name, expression, ...) m_##name += (expression);
#define TOTALLED(name, ...) totals->name += m_##name;

#define REAL float
#define BITS int32_t
#define NAMED(name) name##_float
#define INFINITE 0x7f800000
#define SIGNLESS 0x7fffffff
#define HALF_MAX 0x477fe000
#define HALF_TINY 0x38800000
#include "kernel_core.h"

#define REAL double
#define BITS int64_t
#define NAMED(name) name##_double
#define INFINITE 0x7ff0000000000000
#define SIGNLESS 0x7fffffffffffffff
#define HALF_MAX 0x40effc0000000000
#define HALF_TINY 0x3f10000000000000
#include "kernel_core.h"

/* The scan of 16-bit floats as they lie in memory: as many numbers at a time as a scan of floats has bytes. */
CLONES static Scan scan_short(const int16_t *x, int n, int type, int count_half) {
    int16_t infinite = type == F16 ? 0x7c00 : 0x7f80;
    int16_t most = type == F16 ? 0x7bff : 0x477f, tiny = type == F16 ? 0x0400 : 0x3880;
    int16_t low = INT16_MAX, high = INT16_MIN, overflow = 0, subnormal = 0;
    if (count_half) {
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : overflow, subnormal)
        for (int i = 0; i < n; i++) {
            int16_t magnitude = x[i] & 0x7fff, key = x[i] ^ ((int16_t)(x[i] >> 15) & 0x7fff);
            low = key < low ? key : low;
            high = key > high ? key : high;
            overflow += magnitude > most;
            subnormal += (magnitude < tiny) & (magnitude > 0);
        }
    } else {
#pragma omp simd reduction(min : low) reduction(max : high)
        for (int i = 0; i < n; i++) {
            int16_t key = x[i] ^ ((int16_t)(x[i] >> 15) & 0x7fff);
            low = key < low ? key : low;
            high = key > high ? key : high;
        }
    }
    uint16_t keys[2] = {(uint16_t)low, (uint16_t)high};
    float ends[2];
    for (int i = 0; i < 2; i++)
        keys[i] ^= keys[i] & 0x8000u ? 0x7fffu : 0u;
    if (type == F16)
        widen_half(keys, ends, 2);
    else
        widen_bfloat(keys, ends, 2);
    int finite = high < infinite && low > ~infinite;
    return (Scan){finite, overflow, subnormal, ends[0], ends[1]};
}

static Scan scan_of(const void *from, const float *wide, int type, int n, int count_half) {
    return type == F16 || type == BF16 ? scan_short(from, n, type, count_half) : scan_float(wide, n, count_half);
}

/* ---- what Python calls ---- */

/* Elements [first, first + n) of two tensors; base and target point at the first of them, first is a multiple of 8.
 * Both pointers equal: the numbers of one tensor. Tables: 256 floats for types of one byte
 * that have no name here, one table for each; NULL for the others.
 */
void pd_compare(const void *base, const void *target, int32_t base_type, int32_t target_type,
                const float *base_table, const float *target_table, int64_t n, int64_t first,
                const Tolerance *tolerance, uint32_t *histogram, double *diffs, Totals *totals) {
    memset(totals, 0, sizeof *totals);
    totals->base_min = totals->target_min = INFINITY;
    totals->base_max = totals->target_max = -INFINITY;
    totals->max_abs = totals->max_rel = -1;
    totals->first_mismatch = totals->max_abs_at = totals->max_rel_at = -1;
    int alike = base_type == target_type && base_table == target_table;
    totals->identical = alike;
    int64_t base_width = width(base_type), target_width = width(target_type);
    Task task = {tolerance, histogram, diffs, totals, base, target, (int)base_width, (int)target_width};
    int doubles = needs_double(base_type) || needs_double(target_type);
    union {
        float narrow[BLOCK];
        double wide[BLOCK];
    } base_buffer, target_buffer;
    for (int64_t start = 0; start < n; start += BLOCK) {
        int size = n - start < BLOCK ? (int)(n - start) : BLOCK;
        const void *b = (const char *)base + start * base_width, *t = (const char *)target + start * target_width;
        task.next_base = (const char *)b + BLOCK * base_width;
        task.next_target = (const char *)t + BLOCK * target_width;
        int same = alike && (b == t || !memcmp(b, t, (size_t)(size * base_width)));
        totals->identical &= same;
        if (doubles) {
            const double *left = as_double(b, base_type, base_table, base_buffer.wide, size);
            const double *right =
                same ? left : as_double(t, target_type, target_table, target_buffer.wide, size);
            Scan left_scan = scan_double(left, size, 1);
            Scan right_scan = same ? left_scan : scan_double(right, size, 0);
            block_double(&task, left, right, &left_scan, &right_scan, first + start, size);
        } else {
            const float *left = as_float(b, base_type, base_table, base_buffer.narrow, size);
            const float *right = same ? left : as_float(t, target_type, target_table, target_buffer.narrow, size);
            Scan left_scan = scan_of(b, left, base_type, size, 1);
            Scan right_scan = same ? left_scan : scan_of(t, right, target_type, size, 0);
            block_float(&task, left, right, &left_scan, &right_scan, first + start, size);
        }
    }
}

static void sort_few(const double *from, int n, double *to) {
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && to[at - 1] > from[i]; at--)
            to[at] = to[at - 1];
        to[at] = from[i];
    }
}

/* The values of these ranks among n non-negative ones: ranks ascend, and below of them lie before the first value.
 * Such doubles order like their bits, so each level counts a few bits and keeps the values that share a rank's.
 * left: bits, the lowest ones, that no level has counted yet. */
static void select_ranks(const double *from, int64_t n, int left, int64_t below, const int64_t *ranks, int count,
                         double *found, double *room, double *spare) {
    int64_t equal = 1;
    while (equal < n && from[equal] == from[0])
        equal++;
    if (equal == n || n <= FEW) {
        sort_few(from, equal == n ? 1 : (int)n, room);
        for (int r = 0; r < count; r++)
            found[r] = equal == n ? from[0] : room[ranks[r] - below];
        return;
    }
    uint32_t counts[BUCKETS];
    uint8_t slot[BUCKETS];
    int64_t next[RANKS + 1], start[RANKS + 1], before[RANKS + 1];
    /* the exponents of few values are few as well, their lower bits are any */
    int bits = left == 63 || n > 4096 ? 14 : 8, shift = left > bits ? left - bits : 0, mask = (1 << bits) - 1;
    int first_rank[RANKS + 2], slots = 0, least = mask, most = 0;
    for (int64_t i = 0; i < n; i++) {
        int key = bits_of(from[i]) >> shift & mask;
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    memset(counts + least, 0, (size_t)(most - least + 1) * sizeof *counts);
    memset(slot + least, 0, (size_t)(most - least + 1) * sizeof *slot);
    for (int64_t i = 0; i < n; i++)
        counts[bits_of(from[i]) >> shift & mask]++;
    int64_t passed = below, kept = 0;
    for (int rank = 0, key = least; rank < count; passed += counts[key++]) {
        if (ranks[rank] >= passed + counts[key])
            continue;
        slot[key] = (uint8_t)++slots;
        before[slots] = passed;
        start[slots] = next[slots] = kept;
        first_rank[slots] = rank;
        kept += counts[key];
        while (rank < count && ranks[rank] < passed + counts[key])
            rank++;
        first_rank[slots + 1] = rank;
    }
    for (int64_t i = 0; i < n; i++) {
        int s = slot[bits_of(from[i]) >> shift & mask];
        if (s)
            room[next[s]++] = from[i];
    }
    for (int s = 1; s <= slots; s++)
        select_ranks(room + start[s], next[s] - start[s], shift, before[s],
                     ranks + first_rank[s], first_rank[s + 1] - first_rank[s], found + first_rank[s],
                     spare + start[s], room + start[s]);
}

/* The values of up to RANKS ascending ranks, from 0, among n non-negative values; room holds 2 n. */
void pd_select(const double *values, int64_t n, const int64_t *ranks, int32_t count, double *found, double *room) {
    select_ranks(values, n, 63, 0, ranks, count, found, room, room + n);
}

/* The fingerprint of the sources that this library was built from. */
const char *pd_source(void) { return SOURCE; }

/* The instructions that pd_compare uses on this processor. */
const char *pd_instructions(void) {
#if CLONED
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "AVX-512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        return "AVX2";
    return "SSE2";
#elif defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__x86_64__)
    return "SSE2";
#elif defined(__aarch64__)
    return "NEON";
#else
    return "plain";
#endif
}

/* The scan: one reading of two tensors in float32, for one pair of types and one rule.
 *
 * A warp takes chunks of LANES * WIDE * inner neighbouring elements. A thread adds its elements up in float32, and at the
 * chunk's end to its float64 sums. The next elements are loaded before the present ones are added up. What is rare is
 * found out by a second look at the chunk, in float64 and from the cache: which elements fail, where float32 cannot
 * decide one; the required relative tolerance, where the chunk raises it; what lies beyond float16. A warp in whose last
 * chunk something failed counts at the first look. Of extremes only the chunk is remembered: `settle` looks for places.
 *
 * Bandwidth leaves a pair of 16-bit elements some 40 instructions, hence what is done to two of them at a time.
 */
#pragma once

#include "device.h"

/* Of the largest error, what float32 may be wrong by where an element is held against the tolerance. */
#define DOUBT 4e-7f
#define RISE (1 + 3e-7f)
/* Chunks that a warp goes on counting in after the last one in which something failed. */
#define PERSISTS 8
/* 0.01 rounded up: errors of exactly 1 % are not above it, and of 16-bit floats no other lies between. */
#define PERCENT 0.010000000707805157f
/* Loads of a thread at once: of 16-bit pairs, and of others. */
#ifndef NARROW_GROUP
#define NARROW_GROUP 4
#define WIDER_GROUP 4
#endif

/* WIDE elements as they lie in memory. */
template <int BYTES> struct alignas(BYTES) Words {
    uint32 at[BYTES / 4];
};

template <int BYTES> DEVICE Words<BYTES> loaded(const char *from) {
#if ON_GPU
    Words<BYTES> words;
    if (BYTES == 16) {
        uint4 four = __ldg((const uint4 *)from);
        words.at[0] = four.x, words.at[1] = four.y, words.at[2 % (BYTES / 4)] = four.z, words.at[3 % (BYTES / 4)] = four.w;
    } else {
        uint2 two = __ldg((const uint2 *)from);
        words.at[0] = two.x, words.at[1] = two.y;
    }
    return words;
#else
    Words<BYTES> words;
    memcpy(&words, from, BYTES);
    return words;
#endif
}

struct Float {
    static constexpr int BYTES = 4, CODE = F32;
    DEVICE_MEMBER static float wide(const uint32 *words, int i) { return float_of(words[i]); }
};
struct Half {
    static constexpr int BYTES = 2, CODE = F16;
    DEVICE_MEMBER static float wide(const uint32 *words, int i) { return half_of((uint16)(words[i / 2] >> 16 * (i % 2))); }
};
struct Brain {
    static constexpr int BYTES = 2, CODE = BF16;
    DEVICE_MEMBER static float wide(const uint32 *words, int i) {
        return float_of(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
    }
};

/* One element. */
template <class T> DEVICE float one(const char *from, int64 at) {
    uint32 word = T::BYTES == 4 ? ((const uint32 *)from)[at] : ((const uint16 *)from)[at];
    return T::wide(&word, 0);
}

/* The smaller and the larger of each, of one float or of two 16-bit ones in a word. */
#if ON_GPU && __CUDA_ARCH__ >= 800
#define PACKED 1
template <class T> DEVICE uint32 lower(uint32 x, uint32 y) {
    uint32 z;
    if (T::CODE == F16)
        asm("min.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    else
        asm("min.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
template <class T> DEVICE uint32 higher(uint32 x, uint32 y) {
    uint32 z;
    if (T::CODE == F16)
        asm("max.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    else
        asm("max.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
    return z;
}
#else
#define PACKED 0
#endif

/* The extremes of a chunk. */
template <class T> struct Range {
    float low, high;
    uint32 lows, highs;
    DEVICE_MEMBER void start() {
        low = INF, high = -INF;
        lows = T::CODE == F16 ? 0x7c007c00u : 0x7f807f80u;
        highs = lows | 0x80008000u;
    }
    DEVICE_MEMBER void take(float x) { low = fminf(low, x), high = fmaxf(high, x); }
    template <int WIDE> DEVICE_MEMBER void take(const uint32 *words) {
#if PACKED
        if (T::BYTES == 2) {
#pragma unroll
            for (int i = 0; i < WIDE / 2; i++)
                lows = lower<T>(lows, words[i]), highs = higher<T>(highs, words[i]);
            return;
        }
#endif
#pragma unroll
        for (int i = 0; i < WIDE; i++)
            take(T::wide(words, i));
    }
    DEVICE_MEMBER void finish() {
#if PACKED
        if (T::BYTES == 2) {
            take(T::wide(&lows, 0)), take(T::wide(&lows, 1));
            take(T::wide(&highs, 0)), take(T::wide(&highs, 1));
        }
#endif
    }
};

/* How many of two 16-bit floats are subnormal in float16, in the two halves of a word. */
template <class T> DEVICE uint32 subnormals_of_two(uint32 word) {
    uint32 magnitude = word & 0x7fff7fffu, normal = T::CODE == F16 ? 0x7c007c00u : 0x47804780u;
    return ((magnitude + 0x7fff7fffu) & ~(magnitude + normal)) >> 15 & 0x00010001u;
}

struct Sums {
    float b[2], t[2], bb[2], tt[2], d[2], dd[2], rel[2];
    float worst, worst_rel, excess, rise, need, near;
    uint32 wrong, over, subnormal, unequal;
};

DEVICE void start_sums(Sums &s) {
#pragma unroll
    for (int i = 0; i < 2; i++)
        s.b[i] = s.t[i] = s.bb[i] = s.tt[i] = s.d[i] = s.dd[i] = s.rel[i] = 0;
    s.worst = s.worst_rel = s.need = 0;
    s.excess = s.rise = -INF;
    s.near = INF;
    s.wrong = s.over = s.subnormal = s.unequal = 0;
}

struct Rule {
    float atol, rtol, raised;
};

template <bool COUNT, bool EITHER> DEVICE void element(Sums &s, float b, float t, int i, const Rule &rule) {
    float d = fabsf(t - b), a = fabsf(b), rel = d * inverse(a + 1e-7f);
    s.b[i] += b;
    s.t[i] += t;
    s.bb[i] = fmaf(b, b, s.bb[i]);
    s.tt[i] = fmaf(t, t, s.tt[i]);
    s.d[i] += d;
    s.dd[i] = fmaf(d, d, s.dd[i]);
    s.rel[i] += rel;
    float excess = fmaf(-rule.rtol, a, d), rise = fmaf(-rule.raised, a, d);
    if (EITHER) {
        s.need = fmaxf(s.need, excess > 0 ? d : 0);
        excess = fminf(excess, d - rule.atol);
        rise = fminf(rise, d - rule.atol);
    }
    if (COUNT) {
        float room = EITHER ? -excess : rule.atol - excess;
        s.wrong += bits_of(room) >> 31;
        s.near = fminf(s.near, fabsf(room));
    }
    if (!COUNT || !EITHER)
        s.excess = fmaxf(s.excess, excess);
    s.rise = fmaxf(s.rise, rise);
    s.over += bits_of(fmaf(PERCENT, a, -d)) >> 31;
    s.worst = fmaxf(s.worst, d);
    s.worst_rel = fmaxf(s.worst_rel, rel);
}

template <class B, class T, bool EITHER> struct Scan {
    static constexpr int WIDE = B::BYTES == 2 && T::BYTES == 2 ? 8 : 4, STEP = LANES * WIDE, GROUP = WIDE == 8 ? NARROW_GROUP : WIDER_GROUP;
    typedef Words<WIDE * B::BYTES> BaseWords;
    typedef Words<WIDE * T::BYTES> TargetWords;

    const Job &job;
    const char *base, *target;
    float atol, rtol, slack;
    double row[FIELDS];
    double sums[7];
    uint32 wrong, over, overflow, subnormal, unequal;
    float base_low, base_high, target_low, target_high, need_a, need_r, worst, worst_rel;
    int worst_chunk, worst_rel_chunk, first_chunk;
    int counting;
    BaseWords next_b[GROUP];
    TargetWords next_t[GROUP];

    DEVICE_MEMBER explicit Scan(const Job &given) : job(given) {
        base = (const char *)job.base, target = (const char *)job.target;
        atol = (float)job.atol, rtol = (float)job.rtol;
        slack = rtol * 4e-30f + 1e-37f; /* denormal numbers */
        for (int i = 0; i < 7; i++)
            sums[i] = 0;
        wrong = over = overflow = subnormal = unequal = 0;
        base_low = target_low = INF, base_high = target_high = -INF;
        need_a = need_r = 0, worst = worst_rel = -1;
        worst_chunk = worst_rel_chunk = 0, first_chunk = -1;
        counting = 0;
    }

    DEVICE_MEMBER int64 chunk_size() const { return (int64)STEP * job.inner; }

    /* Fetch a group of loads whose first element, of this lane, is number `at`. */
    DEVICE_MEMBER void fetch(int64 at) {
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            next_b[i] = loaded<sizeof(BaseWords)>(base + (at + i * STEP) * B::BYTES);
            next_t[i] = loaded<sizeof(TargetWords)>(target + (at + i * STEP) * T::BYTES);
        }
    }

    template <bool COUNT>
    DEVICE_MEMBER void words(Sums &s, Range<B> &br, Range<T> &tr, const uint32 *b, const uint32 *t, const Rule &rule) {
        br.template take<WIDE>(b);
        tr.template take<WIDE>(t);
        if (B::CODE == T::CODE) {
#pragma unroll
            for (int i = 0; i < WIDE * B::BYTES / 4; i++)
                s.unequal |= b[i] ^ t[i];
        }
        if (B::BYTES == 2) {
#pragma unroll
            for (int i = 0; i < WIDE / 2; i++)
                s.subnormal += subnormals_of_two<B>(b[i]);
        }
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            if (B::BYTES == 4)
                s.subnormal += (b[i] & 0x7fffffffu) - 1 < 0x387fffffu;
            element<COUNT, EITHER>(s, B::wide(b, i), T::wide(t, i), i % 2, rule);
        }
    }

    /* A chunk that is full. after: where this warp's next one begins, of this lane. */
    template <bool COUNT> DEVICE_MEMBER void full(Sums &s, Range<B> &br, Range<T> &tr, int64 start, int64 after, const Rule &rule) {
        for (int step = 0; step < job.inner; step += GROUP) {
            BaseWords b[GROUP];
            TargetWords t[GROUP];
#pragma unroll
            for (int i = 0; i < GROUP; i++)
                b[i] = next_b[i], t[i] = next_t[i];
            fetch(step + GROUP < job.inner ? start + (int64)(step + GROUP) * STEP : after);
#pragma unroll
            for (int i = 0; i < GROUP; i++)
                words<COUNT>(s, br, tr, b[i].at, t[i].at, rule);
        }
    }

    /* The last chunk, element by element. */
    DEVICE_MEMBER void partial(Sums &s, Range<B> &br, Range<T> &tr, int64 start, const Rule &rule) {
        for (int step = 0; step < job.inner; step++) {
            int64 first = start + (int64)step * STEP;
            for (int64 at = first; at < first + WIDE && at < job.size; at++) {
                uint32 b = 0, t = 0;
                if (B::BYTES == 4)
                    b = ((const uint32 *)base)[at];
                else
                    b = ((const uint16 *)base)[at];
                if (T::BYTES == 4)
                    t = ((const uint32 *)target)[at];
                else
                    t = ((const uint16 *)target)[at];
                if (B::CODE == T::CODE)
                    s.unequal |= b ^ t;
                float x = B::wide(&b, 0), y = T::wide(&t, 0);
                s.subnormal += (bits_of(x) & 0x7fffffffu) - 1 < 0x387fffffu;
                br.take(x);
                tr.take(y);
                element<true, EITHER>(s, x, y, 0, rule);
            }
        }
    }

    /* What a second look finds, in float64: how many fail, and the relative tolerance needed. */
    struct Second {
        uint32 failed;
        double need;
    };

    DEVICE_MEMBER void look_again(Second &found, float x, float y) {
        double b = x, t = y, d = fabs(t - b), m = fabs(b), rest = d > job.atol ? (job.either ? d : d - job.atol) : -1.0;
        found.failed += !passes(d, m, job);
        overflow += m > 65504.0;
        if (rest > found.need * m)
            found.need = m > 0 ? rest / m : 1e30;
    }

    /* This thread's elements of a chunk once more. */
    DEVICE_MEMBER uint32 again(int64 start, bool whole) {
        Second found = {0, need_r};
        for (int step = 0; step < job.inner; step++) {
            int64 first = start + (int64)step * STEP;
            if (whole) {
                BaseWords b = loaded<sizeof(BaseWords)>(base + first * B::BYTES);
                TargetWords t = loaded<sizeof(TargetWords)>(target + first * T::BYTES);
#pragma unroll
                for (int i = 0; i < WIDE; i++)
                    look_again(found, B::wide(b.at, i), T::wide(t.at, i));
            } else {
                for (int64 at = first; at < first + WIDE && at < job.size; at++)
                    look_again(found, one<B>(base, at), one<T>(target, at));
            }
        }
        float need = found.need < 1e30 ? (float)found.need : 1e30f;
        if (need > need_r) {
            need_r = need;
            raise(job.scratch + KNOWN, bits_of(need));
        }
        return found.failed;
    }

    DEVICE_MEMBER void chunk(int number, int next, int chunks) {
        int64 mine = (int64)LANE * WIDE, start = number * chunk_size() + mine;
        bool whole = (number + 1) * chunk_size() <= job.size;
        bool follows = next < chunks && (next + 1) * chunk_size() <= job.size;
        need_r = fmaxf(need_r, float_of(*(volatile uint32 *)(job.scratch + KNOWN)));
        /* past every bound nothing rises: -inf * 0 is no number, which fmaxf leaves out */
        Rule rule = {atol, rtol, need_r < 1e30f ? need_r * RISE : INF};
        Sums s;
        Range<B> br;
        Range<T> tr;
        start_sums(s);
        br.start();
        tr.start();
        bool counted = counting > 0 || !whole;
        if (!whole)
            partial(s, br, tr, start, rule);
        else if (counting > 0)
            full<true>(s, br, tr, start, follows ? next * chunk_size() + mine : start, rule);
        else
            full<false>(s, br, tr, start, follows ? next * chunk_size() + mine : start, rule);
        br.finish();
        tr.finish();
        base_low = fminf(base_low, br.low), base_high = fmaxf(base_high, br.high);
        target_low = fminf(target_low, tr.low), target_high = fmaxf(target_high, tr.high);
        sums[0] += (double)(s.b[0] + s.b[1]);
        sums[1] += (double)(s.t[0] + s.t[1]);
        sums[2] += (double)(s.bb[0] + s.bb[1]);
        sums[3] += (double)(s.tt[0] + s.tt[1]);
        sums[4] += (double)(s.d[0] + s.d[1]);
        sums[5] += (double)(s.dd[0] + s.dd[1]);
        sums[6] += (double)(s.rel[0] + s.rel[1]);
        over += s.over;
        subnormal += B::BYTES == 2 && whole ? (s.subnormal & 0xffffu) + (s.subnormal >> 16) : s.subnormal;
        unequal |= s.unequal;
        if (s.worst > worst)
            worst = s.worst, worst_chunk = number;
        if (s.worst_rel > worst_rel)
            worst_rel = s.worst_rel, worst_rel_chunk = number;
        need_a = fmaxf(need_a, EITHER ? s.need : s.excess);
        float need = EITHER ? 0 : atol, doubt = DOUBT * s.worst + slack;
        bool fails = counted ? s.wrong > 0 || s.near < doubt : s.excess > need - doubt;
        bool careful = counted ? s.near < doubt : fails;
        uint32 failed = s.wrong;
        if (careful || s.rise > need || fmaxf(br.high, -br.low) > 65504.0f)
            failed = again(start, whole);
        wrong += failed;
        if (failed && first_chunk < 0)
            first_chunk = number;
        counting = any(fails) ? PERSISTS : counting - (counting > 0);
    }

    /* A part of the sample: runs of neighbours, whose errors are counted. */
    DEVICE_MEMBER void sample() {
        uint32 *copy = job.scratch + BLOCK % COPIES * BUCKETS;
        for (int number = BLOCK; number < job.runs; number += BLOCKS) {
            int64 start = run_start(job, number);
            for (int i = LANE; i < RUN; i += LANES) {
                int64 at = start + i < job.size ? start + i : job.size - 1;
                add_one(copy + (bits_of(fabsf(one<T>(target, at) - one<B>(base, at))) >> BUCKET_BITS));
            }
        }
    }

    DEVICE_MEMBER void store() {
        start_row(row);
        row[at_base_sum] = sums[0], row[at_target_sum] = sums[1];
        row[at_base_squares] = sums[2], row[at_target_squares] = sums[3];
        row[at_sum_abs] = sums[4], row[at_squares] = sums[5], row[at_sum_rel] = sums[6];
        row[at_mismatched] = wrong, row[at_share_rel_over_1pct] = over;
        row[at_overflow] = overflow, row[at_subnormal] = subnormal, row[at_unequal] = unequal != 0;
        row[at_base_min] = base_low, row[at_base_max] = base_high;
        row[at_target_min] = target_low, row[at_target_max] = target_high;
        row[at_required_atol] = need_a, row[at_required_rtol] = need_r;
        row[at_max_abs] = worst, row[at_max_abs_at] = worst_chunk;
        row[at_max_rel] = worst_rel, row[at_max_rel_at] = worst_rel_chunk;
        if (first_chunk >= 0)
            row[at_first_mismatch] = first_chunk;
        add_lanes(row);
        if (LANE == 0) {
#pragma unroll
            for (int field = 0; field < FIELDS; field++)
                job.partial[(int64)field * job.rows + BLOCK] = row[field];
        }
    }

    DEVICE_MEMBER void run() {
        int chunks = (int)((job.size + chunk_size() - 1) / chunk_size());
        if (BLOCK < chunks && (BLOCK + 1) * chunk_size() <= job.size)
            fetch(BLOCK * chunk_size() + (int64)LANE * WIDE);
        sample();
        for (int number = BLOCK; number < chunks; number += BLOCKS)
            chunk(number, number + BLOCKS, chunks);
        store();
    }
};

#define SCANNING(NAME, B, T)                                                                                           \
    SCAN_KERNEL(NAME, B, T, isclose, false)                                                                            \
    SCAN_KERNEL(NAME, B, T, either, true)
#define SCAN_KERNEL(NAME, B, T, RULE, EITHER)                                                                          \
    KERNEL BOUNDED scan_##NAME##_##RULE(const Job job) {                                                               \
        Scan<B, T, EITHER> scan(job);                                                                                  \
        scan.run();                                                                                                    \
    }

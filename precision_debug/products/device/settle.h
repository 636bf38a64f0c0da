/* What follows a scan: `settle` adds the warps' rows up and looks for places, and tells whether float32 held it all;
 * `exact` reads both tensors once more in float64 where it did not, or where there is no scan for their types.
 */
#pragma once

#include "device.h"

/* Magnitudes whose squares, and sums of them over a chunk, stay inside float32. */
#define SAFE 1e17

/* The row of all rows: a field by a warp. Of places the least number among the rows that have the largest value. */
DEVICE void add_rows(const double *partial, int rows, double *row) {
    for (int field = WARP; field < at_exact; field += WARPS) {
        const double *column = partial + (int64)field * rows;
        int of = field >= FIRST_PLACE ? field - FIRST_PLACE + at_max_abs : field;
        const double *values = partial + (int64)of * rows;
        double found = field < FIRST_LEAST ? 0.0 : field < FIRST_MOST ? BIG_INF : -BIG_INF, place = NOWHERE;
        if (field < FIRST_LEAST) {
#pragma unroll 8
            for (int i = LANE; i < rows; i += LANES)
                found += values[i];
        } else if (field < FIRST_MOST) {
#pragma unroll 8
            for (int i = LANE; i < rows; i += LANES)
                found = values[i] < found ? values[i] : found;
        } else {
#pragma unroll 8
            for (int i = LANE; i < rows; i += LANES) {
                double value = values[i], at = column[i];
                if (value > found || (value == found && at < place))
                    found = value, place = at;
            }
        }
        for (int apart = 1; apart < LANES; apart *= 2) {
            double value = from_lane(found, apart), at = from_lane(place, apart);
            if (field < FIRST_LEAST)
                found += value;
            else if (field < FIRST_MOST)
                found = value < found ? value : found;
            else if (value > found || (value == found && at < place))
                found = value, place = at;
        }
        if (LANE == 0)
            row[field] = field >= FIRST_PLACE ? place : found;
    }
}

/* Loads of neighbours wait for each other less than one does for the next. */
#define AHEAD 4

template <class T> DEVICE void plain_of(const void *from, int64 at, int64 step, int64 size, double *found) {
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        found[i] = at + i * step < size ? (double)((const T *)from)[at + i * step] : 0.0;
}

/* Elements at, at + step, ...; 0 behind the end. */
DEVICE void elements_of(const void *from, int type, int64 at, int64 step, int64 size, double *found) {
    switch (type) {
    case F32: plain_of<float>(from, at, step, size, found); return;
    case F64: plain_of<double>(from, at, step, size, found); return;
    case I32: plain_of<int>(from, at, step, size, found); return;
    case I64: plain_of<int64>(from, at, step, size, found); return;
    case F16:
    case BF16: {
        uint16 bits[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            bits[i] = at + i * step < size ? ((const uint16 *)from)[at + i * step] : 0;
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            found[i] = type == F16 ? half_of(bits[i]) : float_of((uint32)bits[i] << 16);
        return;
    }
    default:
        for (int i = 0; i < AHEAD; i++)
            found[i] = at + i * step < size ? element_of(from, type, at + i * step) : 0.0;
    }
}

/* The largest value of all threads, and the least place that has it, for everyone. */
DEVICE void most_of_threads(double &value, double &place) {
    SHARED double values[32], places[32];
    for (int apart = 1; apart < LANES; apart *= 2) {
        double other = from_lane(value, apart), at = from_lane(place, apart);
        if (other > value || (other == value && at < place))
            value = other, place = at;
    }
    SYNC();
    if (LANE == 0)
        values[WARP] = value, places[WARP] = place;
    SYNC();
    value = values[0], place = places[0];
    for (int i = 1; i < WARPS; i++)
        if (values[i] > value || (values[i] == value && places[i] < place))
            value = values[i], place = places[i];
}

/* In the chunk that a row names: the largest error (what 0), relative error (1), or the first that fails (2). */
DEVICE void look_up(const Job &job, double chunk, int what, double &value, double &place) {
    int64 size = (int64)LANES * job.wide * job.inner, start = (int64)chunk * size;
    int64 end = start + size < job.size ? start + size : job.size;
    value = -1.0, place = NOWHERE;
    for (int64 first = start + THREAD; first < end; first += AHEAD * THREADS) {
        double b[AHEAD], t[AHEAD];
        elements_of(job.base, job.base_type, first, THREADS, end, b);
        elements_of(job.target, job.target_type, first, THREADS, end, t);
        for (int i = 0; i < AHEAD && first + i * THREADS < end; i++) {
            double d = fabs(t[i] - b[i]), m = fabs(b[i]);
            double here = what == 0 ? d : what == 1 ? d / (m + 1e-7) : passes(d, m, job) ? -1.0 : 1.0;
            if (here > value)
                value = here, place = (double)(first + i * THREADS);
        }
    }
    most_of_threads(value, place);
}

DEVICE bool held_by_float32(const double *row) {
    double peak = 0, largest = row[at_max_abs];
    bool sums = true;
    for (int field = at_base_sum; field <= at_sum_rel; field++)
        sums = sums && fabs(row[field]) < BIG_INF;
    peak = fmax(fmax(row[at_base_max], -row[at_base_min]), fmax(row[at_target_max], -row[at_target_min]));
    bool tiny = (largest > 0 && largest < 1 / SAFE) || (peak > 0 && peak < 1 / SAFE);
    double ours = row[at_base_squares], theirs = row[at_target_squares]; /* far apart, the cosine needs their product */
    return sums && peak < SAFE && largest < SAFE && !tiny && 0.25 * ours <= theirs && theirs <= 4 * ours;
}

/* Block 0: the row. The others, THREADS elements each: every error, or the copies' sum, and zeros in their place. */
KERNEL SETTLING settle(const Job job) {
    SHARED double row[FIELDS];
    if (BLOCK > 0) {
        int64 at = (int64)(BLOCK - 1) * THREADS + THREAD;
        if (job.runs) {
            if (at >= BUCKETS)
                return;
            uint32 total = 0;
            for (int copy = 0; copy < COPIES; copy++) {
                total += job.scratch[copy * BUCKETS + at];
                job.scratch[copy * BUCKETS + at] = 0;
            }
            ((uint32 *)job.extra)[at] = total;
        } else if (at < job.size) {
            double b = element_of(job.base, job.base_type, at), t = element_of(job.target, job.target_type, at);
            double d = fabs(t - b);
            bool finite = fabs(b) < BIG_INF && fabs(t) < BIG_INF;
            if (job.wide_errors)
                ((double *)job.extra)[at] = finite ? d : BIG_INF;
            else
                ((float *)job.extra)[at] = finite ? (float)fmin(d, 3.4028234663852886e38) : INF;
        }
        return;
    }
    if (job.forced)
        return;
    if (THREAD == 0)
        job.scratch[KNOWN] = 0;
    add_rows(job.partial, job.rows, row);
    SYNC();
    double value, place;
    look_up(job, row[at_max_abs_at], 0, value, place);
    double largest = value, largest_at = place;
    look_up(job, row[at_max_rel_at], 1, value, place);
    double largest_rel = value, largest_rel_at = place, first = NOWHERE;
    if (row[at_first_mismatch] < NOWHERE) {
        look_up(job, row[at_first_mismatch], 2, value, place);
        first = place;
    }
    SYNC();
    if (THREAD == 0) {
        row[at_max_abs] = largest, row[at_max_abs_at] = largest_at;
        row[at_max_rel] = largest_rel, row[at_max_rel_at] = largest_rel_at;
        row[at_first_mismatch] = first;
        row[at_finite] = (double)job.size;
        row[at_pair_base_squares] = row[at_base_squares], row[at_pair_target_squares] = row[at_target_squares];
        row[at_exact] = 0;
        job.scratch[FLAG] = !held_by_float32(row);
        for (int field = 0; field < FIELDS; field++)
            job.row[field] = row[field];
    }
}

/* What one thread has read in float64. Counts fit into 32 bits: a thread has that many elements of 2^45 at most. */
struct Exact {
    double base_sum, target_sum, base_squares, target_squares, base_low, base_high, target_low, target_high;
    double pair_base_squares, pair_target_squares, dot, sum_abs, sum_rel, squares, need_a, need_r, worst, worst_rel;
    int64 worst_at, worst_rel_at, first, infinite;
    uint32 finite, wrong, special, overflow, subnormal, base_nan, base_inf, target_nan, target_inf, unheld, unequal;
    uint32 base_negative_inf, target_negative_inf;
#define COUNTED(name, ...) uint32 m_##name;
#define SUMMED(name, ...) double m_##name;
    METRICS(COUNTED, SUMMED)
#undef COUNTED
#undef SUMMED

    DEVICE_MEMBER void start() {
        base_sum = target_sum = base_squares = target_squares = 0;
        base_low = target_low = BIG_INF, base_high = target_high = -BIG_INF;
        pair_base_squares = pair_target_squares = dot = sum_abs = sum_rel = squares = need_a = need_r = 0;
        worst = worst_rel = -1, worst_at = worst_rel_at = 0, first = infinite = -1;
        finite = wrong = special = overflow = subnormal = 0;
        base_nan = base_inf = target_nan = target_inf = unheld = unequal = 0;
        base_negative_inf = target_negative_inf = 0;
#define STARTED(name, ...) m_##name = 0;
        METRICS(STARTED, STARTED)
#undef STARTED
    }

    /* One element of a pair; the metrics of held.h see b, t, d and m. */
    DEVICE_MEMBER void take(const Job &job, double b, double t, int64 at) {
        double m = fabs(b), t_size = fabs(t);
        bool b_finite = m < BIG_INF, t_finite = t_size < BIG_INF;
        overflow += m > 65504.0;
        subnormal += m < 6.103515625e-05 && m > 0;
        if (b_finite) {
            base_sum += b, base_squares += b * b;
            base_low = b < base_low ? b : base_low, base_high = b > base_high ? b : base_high;
        }
        if (t_finite) {
            target_sum += t, target_squares += t * t;
            target_low = t < target_low ? t : target_low, target_high = t > target_high ? t : target_high;
        }
        bool failed;
        if (b_finite && t_finite) {
            double d = fabs(t - b), rel = d / (m + 1e-7), part = job.rtol * m;
            double need = job.either ? (d > part ? d : 0) : d - part;
            double rest = d > job.atol ? (job.either ? d : d - job.atol) : -1.0;
            finite++;
            sum_abs += d, sum_rel += rel, squares += d * d;
            pair_base_squares += b * b, pair_target_squares += t * t, dot += b * t;
            need_a = need > need_a ? need : need_a;
            if (rest >= need_r * m && rest > 0) {
                double quotient = rest / m;
                need_r = quotient > need_r ? quotient : need_r;
            }
            if (d > worst)
                worst = d, worst_at = at;
            if (rel > worst_rel)
                worst_rel = rel, worst_rel_at = at;
#define ADDED(name, expression, ...) m_##name += (expression);
            METRICS(ADDED, ADDED)
#undef ADDED
            failed = !passes(d, m, job);
        } else {
            bool b_nan = b != b, t_nan = t != t;
            base_nan += b_nan, base_inf += !b_nan && !b_finite;
            target_nan += t_nan, target_inf += !t_nan && !t_finite;
            base_negative_inf += b == -BIG_INF, target_negative_inf += t == -BIG_INF;
            failed = !(b == t || (job.equal_nan && b_nan && t_nan));
            special += failed;
            if (failed && !b_nan && !t_nan && infinite < 0)
                infinite = at;
        }
        wrong += failed;
        if (failed && first < 0)
            first = at;
    }

    DEVICE_MEMBER void store(double *row) const {
        start_row(row);
        row[at_base_sum] = base_sum, row[at_target_sum] = target_sum;
        row[at_base_squares] = base_squares, row[at_target_squares] = target_squares;
        row[at_sum_abs] = sum_abs, row[at_squares] = squares, row[at_sum_rel] = sum_rel;
        row[at_pair_base_squares] = pair_base_squares, row[at_pair_target_squares] = pair_target_squares;
        row[at_dot] = dot, row[at_finite] = finite, row[at_mismatched] = wrong, row[at_special] = special;
        row[at_overflow] = overflow, row[at_subnormal] = subnormal;
        row[at_base_nan] = base_nan, row[at_base_inf] = base_inf;
        row[at_target_nan] = target_nan, row[at_target_inf] = target_inf;
        row[at_base_negative_inf] = base_negative_inf, row[at_target_negative_inf] = target_negative_inf;
        row[at_unheld] = unheld, row[at_unequal] = unequal;
#define STORED(name, ...) row[at_##name] = m_##name;
        METRICS(STORED, STORED)
#undef STORED
        row[at_base_min] = base_low, row[at_base_max] = base_high;
        row[at_target_min] = target_low, row[at_target_max] = target_high;
        row[at_required_atol] = need_a, row[at_required_rtol] = need_r;
        row[at_max_abs] = worst, row[at_max_rel] = worst_rel;
        if (worst >= 0)
            row[at_max_abs_at] = (double)worst_at, row[at_max_rel_at] = (double)worst_rel_at;
        if (first >= 0)
            row[at_first_mismatch] = (double)first;
        if (infinite >= 0)
            row[at_first_infinite] = (double)infinite;
    }
};

/* Whether an element's bytes differ, which the values do not tell of NaN and of 64-bit integers. */
DEVICE bool bytes_differ(const Job &job, int64 at) {
    switch (job.base_type) {
    case F64: case I64: case U64: return ((const int64 *)job.base)[at] != ((const int64 *)job.target)[at];
    case F32: return ((const uint32 *)job.base)[at] != ((const uint32 *)job.target)[at];
    default: return ((const uint16 *)job.base)[at] != ((const uint16 *)job.target)[at];
    }
}

DEVICE bool is_wide(int type) { return type == I64 || type == U64; }

KERNEL exact(const Job job) {
    if (!job.forced && !job.scratch[FLAG])
        return;
    int number = BLOCK * WARPS + WARP;
    if (job.forced && job.runs) {
        uint32 *copy = job.scratch + number % COPIES * BUCKETS;
        for (int run = number; run < job.runs; run += job.exact_rows) {
            int64 start = run_start(job, run);
            for (int i = LANE; i < RUN; i += LANES) {
                int64 at = start + i < job.size ? start + i : job.size - 1;
                double b = element_of(job.base, job.base_type, at), t = element_of(job.target, job.target_type, at);
                if (fabs(b) < BIG_INF && fabs(t) < BIG_INF)
                    add_one(copy + (bits_of((float)fmin(fabs(t - b), 3.4028234663852886e38)) >> BUCKET_BITS));
            }
        }
    }
    Exact all;
    all.start();
    bool wide = is_wide(job.base_type) || is_wide(job.target_type), alike = job.base_type == job.target_type;
    int64 step = (int64)job.exact_rows * LANES;
    for (int64 first = (int64)number * LANES + LANE; first < job.size; first += AHEAD * step) {
        double b[AHEAD], t[AHEAD];
        elements_of(job.base, job.base_type, first, step, job.size, b);
        elements_of(job.target, job.target_type, first, step, job.size, t);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int64 at = first + i * step;
            if (at >= job.size)
                break;
            all.take(job, b[i], t[i], at);
            if (wide)
                all.unheld += fabs(b[i]) > WHOLE || fabs(t[i]) > WHOLE;
            if (!alike)
                all.unequal = 1;
            else if (b[i] != t[i] || wide)
                all.unequal |= b[i] == b[i] && !wide ? 1 : bytes_differ(job, at);
            else if (b[i] == 0) /* of two signs */
                all.unequal |= 1 / b[i] != 1 / t[i];
        }
    }
    double row[FIELDS];
    all.store(row);
    add_lanes(row);
    if (LANE == 0) {
        for (int field = 0; field < FIELDS; field++)
            job.partial[(int64)field * job.exact_rows + number] = row[field];
    }
    FENCE();
    SYNC();
    SHARED double found[FIELDS];
    SHARED uint32 ended;
    if (THREAD == 0)
        ended = count_up(job.scratch + DONE);
    SYNC();
    if (ended != (uint32)BLOCKS - 1)
        return;
    FENCE();
    add_rows(job.partial, job.exact_rows, found);
    SYNC();
    if (THREAD == 0) {
        job.scratch[DONE] = 0;
        found[at_exact] = 1;
        for (int field = 0; field < FIELDS; field++)
            job.row[field] = found[field];
    }
}

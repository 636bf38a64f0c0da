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
        double found = field < FIRST_LEAST ? 0.0 : field < FIRST_MOST ? BIG_INF : -BIG_INF, place = NOWHERE;
        for (int i = LANE; i < rows; i += LANES) {
            double value = partial[(int64)of * rows + i], at = column[i];
            if (field < FIRST_LEAST)
                found += value;
            else if (field < FIRST_MOST)
                found = value < found ? value : found;
            else if (value > found || (value == found && at < place))
                found = value, place = at;
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
    value = -1.0, place = NOWHERE;
    for (int64 at = start + THREAD; at < start + size && at < job.size; at += THREADS) {
        double b = element_of(job.base, job.base_type, at), t = element_of(job.target, job.target_type, at);
        double d = fabs(t - b), m = fabs(b);
        double here = what == 0 ? d : what == 1 ? d / (m + 1e-7) : passes(d, m, job) ? -1.0 : 1.0;
        if (here > value)
            value = here, place = (double)at;
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
KERNEL settle(const Job job) {
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

/* One element of a pair, in float64; the metrics of metrics.h see b, t, d and m. */
DEVICE void read_exactly(const Job &job, int64 at, double *row) {
    double b = element_of(job.base, job.base_type, at), t = element_of(job.target, job.target_type, at);
    double b_size = fabs(b), t_size = fabs(t);
    bool b_nan = b != b, t_nan = t != t, b_finite = b_size < BIG_INF, t_finite = t_size < BIG_INF;
    row[at_overflow] += b_size > 65504.0;
    row[at_subnormal] += b_size < 6.103515625e-05 && b_size > 0;
    row[at_base_nan] += b_nan, row[at_base_inf] += !b_nan && !b_finite;
    row[at_target_nan] += t_nan, row[at_target_inf] += !t_nan && !t_finite;
    if (b_finite) {
        row[at_base_sum] += b, row[at_base_squares] += b * b;
        row[at_base_min] = fmin(row[at_base_min], b), row[at_base_max] = fmax(row[at_base_max], b);
    }
    if (t_finite) {
        row[at_target_sum] += t, row[at_target_squares] += t * t;
        row[at_target_min] = fmin(row[at_target_min], t), row[at_target_max] = fmax(row[at_target_max], t);
    }
    if (job.base_type == I64 || job.base_type == U64)
        row[at_unheld] += b_size > WHOLE;
    if (job.target_type == I64 || job.target_type == U64)
        row[at_unheld] += t_size > WHOLE;
    bool failed;
    if (b_finite && t_finite) {
        double d = fabs(t - b), m = b_size, rel = d / (m + 1e-7), part = job.rtol * m;
        row[at_finite] += 1;
        row[at_sum_abs] += d, row[at_sum_rel] += rel, row[at_squares] += d * d;
        row[at_pair_base_squares] += b * b, row[at_pair_target_squares] += t * t, row[at_dot] += b * t;
        double need = job.either ? (d > part ? d : 0) : d - part, rest = job.either ? d : d - job.atol;
        row[at_required_atol] = fmax(row[at_required_atol], need);
        if (d > job.atol)
            row[at_required_rtol] = fmax(row[at_required_rtol], rest / m);
        if (d > row[at_max_abs])
            row[at_max_abs] = d, row[at_max_abs_at] = (double)at;
        if (rel > row[at_max_rel])
            row[at_max_rel] = rel, row[at_max_rel_at] = (double)at;
#define ADDED(name, expression, ...) row[at_##name] += (expression);
        METRICS(ADDED, ADDED)
#undef ADDED
        failed = !passes(d, m, job);
    } else {
        failed = !(b == t || (job.equal_nan && b_nan && t_nan));
        row[at_special] += failed;
        if (failed && !b_nan && !t_nan && (double)at < row[at_first_infinite])
            row[at_first_infinite] = (double)at;
    }
    row[at_mismatched] += failed;
    if (failed && (double)at < row[at_first_mismatch])
        row[at_first_mismatch] = (double)at;
}

/* Whether an element's bytes differ; types that differ are never identical. */
DEVICE bool unequal_at(const Job &job, int64 at) {
    if (job.base_type != job.target_type)
        return true;
    switch (job.base_type) {
    case F64: case I64: case U64: return ((const int64 *)job.base)[at] != ((const int64 *)job.target)[at];
    case F32: case I32: case U32: return ((const uint32 *)job.base)[at] != ((const uint32 *)job.target)[at];
    case F16: case BF16: case I16: case U16: return ((const uint16 *)job.base)[at] != ((const uint16 *)job.target)[at];
    default: return ((const unsigned char *)job.base)[at] != ((const unsigned char *)job.target)[at];
    }
}

KERNEL exact(const Job job) {
    if (!job.forced && !job.scratch[FLAG])
        return;
    double row[FIELDS];
    start_row(row);
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
    int64 step = (int64)job.exact_rows * LANES;
    for (int64 at = (int64)number * LANES + LANE; at < job.size; at += step) {
        read_exactly(job, at, row);
        row[at_unequal] += unequal_at(job, at);
    }
    add_lanes(row);
    if (LANE == 0) {
        for (int field = 0; field < FIELDS; field++)
            job.partial[(int64)field * job.exact_rows + number] = row[field];
    }
    FENCE();
    SYNC();
    SHARED double all[FIELDS];
    SHARED uint32 ended;
    if (THREAD == 0)
        ended = count_up(job.scratch + DONE);
    SYNC();
    if (ended != (uint32)BLOCKS - 1)
        return;
    FENCE();
    add_rows(job.partial, job.exact_rows, all);
    SYNC();
    if (THREAD == 0) {
        job.scratch[DONE] = 0;
        all[at_exact] = 1;
        for (int field = 0; field < FIELDS; field++)
            job.row[field] = all[field];
    }
}

/* Sums of a pair of tensors by rows and by columns, in one reading: what slices.py makes slices of every axis from.
 *
 * A row is what lies together along the last axis. Of each row, and of each column, over the pairs that are finite on
 * both sides: their count, the sums of b, b^2 and (t - b)^2, and the largest |b|.
 *
 * Float32 is summed in float32, in as many sums as a register holds and over few rows, and those sums in double: off by
 * some 1e-6 of themselves at a fraction of the cost. A row with a number that is not finite, or whose square is not,
 * is summed in double throughout.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef SOURCE
#define SOURCE "unknown"
#endif

#define SUMS 5
enum { COUNT, SUM, SQUARES, ERRORS, PEAK };

#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__) && !defined(PLAIN)
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#elif defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 11 && !defined(__clang__) && !defined(PLAIN)
#define CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define CLONES
#endif

#define LARGEST 1e150 /* whose square float64 holds, in sums of any length that fits in memory */
#define STRETCH 2048  /* elements of a row that are summed in float32 before they are added up in double */
#define ROWS 64       /* rows of a column likewise */

/* One row, in double. by_column: SUMS * columns, to be added to, or NULL. */
#define IN_DOUBLE(NAME, REAL)                                                                                          \
    CLONES static void NAME(const REAL *restrict left, const REAL *restrict right, int64_t columns,                    \
                            double *restrict mine, double *restrict by_column) {                                       \
        double count = 0, sum = 0, squares = 0, errors = 0, peak = 0;                                                  \
        _Pragma("omp simd reduction(+ : count, sum, squares, errors) reduction(max : peak)")                           \
        for (int64_t i = 0; i < columns; i++) {                                                                        \
            double b = (double)left[i], d = (double)right[i] - b;                                                      \
            int finite = fabs(b) <= LARGEST & fabs(d) <= LARGEST;                                                      \
            b = finite ? b : 0.0, d = finite ? d : 0.0;                                                                \
            double size = fabs(b);                                                                                     \
            count += finite;                                                                                           \
            sum += b;                                                                                                  \
            squares += b * b;                                                                                          \
            errors += d * d;                                                                                           \
            peak = size > peak ? size : peak;                                                                          \
        }                                                                                                              \
        mine[COUNT] = count, mine[SUM] = sum, mine[SQUARES] = squares, mine[ERRORS] = errors, mine[PEAK] = peak;       \
        if (!by_column)                                                                                                \
            return;                                                                                                    \
        double *restrict counts = by_column, *restrict sums = by_column + SUM * columns;                               \
        double *restrict square = by_column + SQUARES * columns, *restrict error = by_column + ERRORS * columns;       \
        double *restrict most = by_column + PEAK * columns;                                                            \
        _Pragma("omp simd")                                                                                            \
        for (int64_t i = 0; i < columns; i++) {                                                                        \
            double b = (double)left[i], d = (double)right[i] - b;                                                      \
            int finite = fabs(b) <= LARGEST & fabs(d) <= LARGEST;                                                      \
            b = finite ? b : 0.0, d = finite ? d : 0.0;                                                                \
            double size = fabs(b);                                                                                     \
            counts[i] += finite;                                                                                       \
            sums[i] += b;                                                                                              \
            square[i] += b * b;                                                                                        \
            error[i] += d * d;                                                                                         \
            most[i] = size > most[i] ? size : most[i];                                                                 \
        }                                                                                                              \
    }

IN_DOUBLE(row_of_doubles, double)
IN_DOUBLE(row_of_floats, float)

/* Sums of one row in float32; 0 where something is not finite, and nothing may be said of the row. */
CLONES static int quick_row(const float *restrict left, const float *restrict right, int64_t columns,
                            double *restrict mine) {
    double all_sum = 0, all_squares = 0, all_errors = 0;
    float peak = 0;
    for (int64_t first = 0; first < columns; first += STRETCH) {
        int64_t last = first + STRETCH < columns ? first + STRETCH : columns;
        float sum = 0, squares = 0, errors = 0;
        _Pragma("omp simd reduction(+ : sum, squares, errors) reduction(max : peak)")
        for (int64_t i = first; i < last; i++) {
            float b = left[i], d = right[i] - b, size = fabsf(b);
            sum += b;
            squares += b * b;
            errors += d * d;
            peak = size > peak ? size : peak;
        }
        if (!(squares <= FLT_MAX && errors <= FLT_MAX))
            return 0;
        all_sum += sum, all_squares += squares, all_errors += errors;
    }
    mine[COUNT] = (double)columns, mine[SUM] = all_sum, mine[SQUARES] = all_squares, mine[ERRORS] = all_errors;
    mine[PEAK] = peak;
    return 1;
}

/* One row, added to float32 sums of the columns: sums, squares, errors, peaks. */
CLONES static void quick_columns(const float *restrict left, const float *restrict right, int64_t columns,
                                 float *restrict sums, float *restrict squares, float *restrict errors,
                                 float *restrict peaks) {
    _Pragma("omp simd")
    for (int64_t i = 0; i < columns; i++) {
        float b = left[i], d = right[i] - b, size = fabsf(b);
        sums[i] += b;
        squares[i] += b * b;
        errors[i] += d * d;
        peaks[i] = size > peaks[i] ? size : peaks[i];
    }
}

CLONES static void flush(const float *restrict some, int64_t columns, int64_t rows, double *restrict by_column) {
    for (int64_t i = 0; i < columns; i++) {
        by_column[i] += (double)rows;
        by_column[SUM * columns + i] += some[i];
        by_column[SQUARES * columns + i] += some[columns + i];
        by_column[ERRORS * columns + i] += some[2 * columns + i];
        double size = some[3 * columns + i], most = by_column[PEAK * columns + i];
        by_column[PEAK * columns + i] = size > most ? size : most;
    }
}

/* by_row: rows * SUMS. by_column: SUMS * columns, to be added to, or NULL. some: room for 4 * columns. */
void pd_slices_float(const float *base, const float *target, int64_t rows, int64_t columns, double *by_row,
                     double *by_column, float *some) {
    int64_t added = 0;
    size_t room = 4 * (size_t)columns * sizeof(float);
    if (by_column)
        memset(some, 0, room);
    for (int64_t row = 0; row < rows; row++) {
        const float *left = base + row * columns, *right = target + row * columns;
        double *mine = by_row + row * SUMS;
        if (!quick_row(left, right, columns, mine)) {
            row_of_floats(left, right, columns, mine, by_column);
            continue;
        }
        if (!by_column)
            continue;
        quick_columns(left, right, columns, some, some + columns, some + 2 * columns, some + 3 * columns);
        if (++added == ROWS) {
            flush(some, columns, added, by_column);
            memset(some, 0, room), added = 0;
        }
    }
    if (added)
        flush(some, columns, added, by_column);
}

void pd_slices_double(const double *base, const double *target, int64_t rows, int64_t columns, double *by_row,
                      double *by_column, float *some) {
    (void)some;
    for (int64_t row = 0; row < rows; row++)
        row_of_doubles(base + row * columns, target + row * columns, columns, by_row + row * SUMS, by_column);
}

const char *pd_source(void) { return SOURCE; }

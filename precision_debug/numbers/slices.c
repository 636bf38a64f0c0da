/* Sums of a pair of tensors by rows and by columns, in one reading: what slices.py makes slices of every axis from.
 *
 * A row is what lies together along the last axis. Of each row, and of each column, over the pairs that are finite on
 * both sides: their count, the sums of b, b^2 and (t - b)^2, and the largest |b|. All sums are in double.
 */

#include <math.h>
#include <stdint.h>

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

/* by_row: rows * SUMS. by_column: SUMS * columns, to be added to, or NULL. */
#define SLICES(NAME, REAL)                                                                                             \
    CLONES void NAME(const REAL *restrict base, const REAL *restrict target, int64_t rows, int64_t columns,            \
                     double *restrict by_row, double *restrict by_column) {                                            \
        for (int64_t row = 0; row < rows; row++) {                                                                     \
            const REAL *restrict left = base + row * columns, *restrict right = target + row * columns;                \
            double count = 0, sum = 0, squares = 0, errors = 0, peak = 0;                                              \
            _Pragma("omp simd reduction(+ : count, sum, squares, errors) reduction(max : peak)")                       \
            for (int64_t i = 0; i < columns; i++) {                                                                    \
                double b = (double)left[i], d = (double)right[i] - b;                                                  \
                int finite = fabs(b) <= LARGEST & fabs(d) <= LARGEST;                                                  \
                b = finite ? b : 0.0, d = finite ? d : 0.0;                                                            \
                double size = fabs(b);                                                                                 \
                count += finite;                                                                                       \
                sum += b;                                                                                              \
                squares += b * b;                                                                                      \
                errors += d * d;                                                                                       \
                peak = size > peak ? size : peak;                                                                      \
            }                                                                                                          \
            double *mine = by_row + row * SUMS;                                                                        \
            mine[COUNT] = count, mine[SUM] = sum, mine[SQUARES] = squares, mine[ERRORS] = errors, mine[PEAK] = peak;   \
            if (!by_column)                                                                                            \
                continue;                                                                                              \
            double *restrict counts = by_column, *restrict sums = by_column + SUM * columns;                           \
            double *restrict square = by_column + SQUARES * columns, *restrict error = by_column + ERRORS * columns;   \
            double *restrict most = by_column + PEAK * columns;                                                        \
            _Pragma("omp simd")                                                                                        \
            for (int64_t i = 0; i < columns; i++) {                                                                    \
                double b = (double)left[i], d = (double)right[i] - b;                                                  \
                int finite = fabs(b) <= LARGEST & fabs(d) <= LARGEST;                                                  \
                b = finite ? b : 0.0, d = finite ? d : 0.0;                                                            \
                double size = fabs(b);                                                                                 \
                counts[i] += finite;                                                                                   \
                sums[i] += b;                                                                                          \
                square[i] += b * b;                                                                                    \
                error[i] += d * d;                                                                                     \
                most[i] = size > most[i] ? size : most[i];                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }

#define LARGEST 1e150 /* whose square float64 holds, in sums of any length that fits in memory */

SLICES(pd_slices_float, float)
SLICES(pd_slices_double, double)

const char *pd_source(void) { return SOURCE; }

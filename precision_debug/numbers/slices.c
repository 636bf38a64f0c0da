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
#include <stdlib.h>
#include <string.h>

#ifndef SOURCE
#define SOURCE "unknown"
#endif

#define SUMS 5
#define INLINE static inline __attribute__((always_inline))
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

/* ---- float32: four rows at a time, so that the sums of the columns are fetched and put back once for four ---- */

#define AT_ONCE 4
#define LONG 1024 /* elements from which on sixteen sums across registers are worth one reading less */
#define APART(columns) ((columns) + 48) /* sums of a power of two would lie where a page's own elements do */

/* What four rows of a stretch add: to the sums of its columns, sums, squares, errors and peaks that lie `apart` floats
 * from each other, and to the same of each row. */
INLINE void four_rows(const float *restrict left, const float *restrict right, int64_t columns, int64_t n,
                      float *restrict some, int64_t apart, double *restrict by_row) {
    float *restrict sums = some, *restrict squares = some + apart, *restrict errors = some + 2 * apart;
    float *restrict peaks = some + 3 * apart;
    const float *b1 = left + columns, *b2 = b1 + columns, *b3 = b2 + columns;
    const float *t1 = right + columns, *t2 = t1 + columns, *t3 = t2 + columns;
#define ONE(K) float sum##K = 0, square##K = 0, error##K = 0, peak##K = 0;
    ONE(0) ONE(1) ONE(2) ONE(3)
#undef ONE
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3, square0, square1, square2, square3)                             \
    reduction(+ : error0, error1, error2, error3) reduction(max : peak0, peak1, peak2, peak3)
    for (int64_t i = 0; i < n; i++) {
#define ONE(K, B, T)                                                                                                   \
    float v##K = (B)[i], d##K = (T)[i] - v##K, size##K = fabsf(v##K), vv##K = v##K * v##K, dd##K = d##K * d##K;         \
    sum##K += v##K, square##K += vv##K, error##K += dd##K, peak##K = size##K > peak##K ? size##K : peak##K;
        ONE(0, left, right) ONE(1, b1, t1) ONE(2, b2, t2) ONE(3, b3, t3)
#undef ONE
        sums[i] += (v0 + v1) + (v2 + v3);
        squares[i] += (vv0 + vv1) + (vv2 + vv3);
        errors[i] += (dd0 + dd1) + (dd2 + dd3);
        float one = size0 > size1 ? size0 : size1, two = size2 > size3 ? size2 : size3, most = one > two ? one : two;
        peaks[i] = most > peaks[i] ? most : peaks[i];
    }
#define ONE(K)                                                                                                         \
    by_row[K * SUMS + SUM] += sum##K, by_row[K * SUMS + SQUARES] += square##K, by_row[K * SUMS + ERRORS] += error##K;   \
    by_row[K * SUMS + PEAK] = peak##K > by_row[K * SUMS + PEAK] ? peak##K : by_row[K * SUMS + PEAK];
    ONE(0) ONE(1) ONE(2) ONE(3)
#undef ONE
}

/* The same of the columns alone. */
INLINE void four_of_columns(const float *restrict left, const float *restrict right, int64_t columns, int64_t n,
                            float *restrict some, int64_t apart) {
    float *restrict sums = some, *restrict squares = some + apart, *restrict errors = some + 2 * apart;
    float *restrict peaks = some + 3 * apart;
    const float *b1 = left + columns, *b2 = b1 + columns, *b3 = b2 + columns;
    const float *t1 = right + columns, *t2 = t1 + columns, *t3 = t2 + columns;
    _Pragma("omp simd")
    for (int64_t i = 0; i < n; i++) {
        float v0 = left[i], v1 = b1[i], v2 = b2[i], v3 = b3[i];
        float d0 = right[i] - v0, d1 = t1[i] - v1, d2 = t2[i] - v2, d3 = t3[i] - v3;
        float size0 = fabsf(v0), size1 = fabsf(v1), size2 = fabsf(v2), size3 = fabsf(v3);
        float one = size0 > size1 ? size0 : size1, two = size2 > size3 ? size2 : size3, most = one > two ? one : two;
        sums[i] += (v0 + v1) + (v2 + v3);
        squares[i] += (v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3);
        errors[i] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
        peaks[i] = most > peaks[i] ? most : peaks[i];
    }
}

/* One row alone, where fewer than four are left, or where its columns are not asked for (some is NULL). */
INLINE void one_row(const float *restrict left, const float *restrict right, int64_t n, float *restrict some,
                    int64_t apart, double *restrict mine) {
    float sum = 0, square = 0, error = 0, peak = 0;
    _Pragma("omp simd reduction(+ : sum, square, error) reduction(max : peak)")
    for (int64_t i = 0; i < n; i++) {
        float v = left[i], d = right[i] - v, size = fabsf(v);
        sum += v;
        square += v * v;
        error += d * d;
        peak = size > peak ? size : peak;
    }
    mine[SUM] += sum, mine[SQUARES] += square, mine[ERRORS] += error;
    mine[PEAK] = peak > mine[PEAK] ? peak : mine[PEAK];
    if (!some)
        return;
    float *restrict sums = some, *restrict squares = some + apart, *restrict errors = some + 2 * apart;
    float *restrict peaks = some + 3 * apart;
    _Pragma("omp simd")
    for (int64_t i = 0; i < n; i++) {
        float v = left[i], d = right[i] - v, size = fabsf(v);
        sums[i] += v;
        squares[i] += v * v;
        errors[i] += d * d;
        peaks[i] = size > peaks[i] ? size : peaks[i];
    }
}

/* A group of rows in float32; 0 where something is not finite, or its square is not, and nothing may be said of them.
 * by_row: zeroes, or NULL where rows are not asked for; by_column likewise. */
CLONES static int quick_rows(const float *restrict left, const float *restrict right, int64_t rows, int64_t columns,
                             double *restrict by_row, double *restrict by_column, float *restrict some) {
    double aside[AT_ONCE * SUMS];
    memset(aside, 0, sizeof aside);
    if (by_column)
        memset(some, 0, 4 * (size_t)APART(columns) * sizeof *some);
    for (int64_t row = 0, many; row < rows; row += many) {
        many = by_column && row + AT_ONCE <= rows ? AT_ONCE : 1;
        double *mine = by_row ? by_row + row * SUMS : aside;
        for (int64_t first = 0; first < columns; first += STRETCH) {
            int64_t n = columns - first < STRETCH ? columns - first : STRETCH;
            const float *b = left + row * columns + first, *t = right + row * columns + first;
            float *here = by_column ? some + first : NULL;
            if (many == 1) {
                one_row(b, t, n, here, APART(columns), mine);
            } else if (by_row && n >= LONG) {
                four_rows(b, t, columns, n, here, APART(columns), mine);
            } else {
                for (int k = 0; by_row && k < AT_ONCE; k++)
                    one_row(b + k * columns, t + k * columns, n, NULL, 0, mine + k * SUMS);
                four_of_columns(b, t, columns, n, here, APART(columns));
            }
        }
    }
    double worst = 0;
    if (by_row)
        for (int64_t row = 0; row < rows; row++) {
            by_row[row * SUMS + COUNT] = (double)columns;
            worst += by_row[row * SUMS + SQUARES] + by_row[row * SUMS + ERRORS];
        }
    if (by_column) {
        _Pragma("omp simd reduction(+ : worst)")
        for (int64_t i = 0; i < columns; i++)
            worst += (double)some[APART(columns) + i] + (double)some[2 * APART(columns) + i];
    }
    if (!(worst <= DBL_MAX))
        return 0;
    if (!by_column)
        return 1;
    for (int64_t i = 0; i < columns; i++) {
        by_column[i] += (double)rows;
        by_column[SUM * columns + i] += some[i];
        by_column[SQUARES * columns + i] += some[APART(columns) + i];
        by_column[ERRORS * columns + i] += some[2 * APART(columns) + i];
        double size = some[3 * APART(columns) + i], most = by_column[PEAK * columns + i];
        by_column[PEAK * columns + i] = size > most ? size : most;
    }
    return 1;
}

/* by_row: rows * SUMS, zeroes, or NULL. by_column: SUMS * columns, to be added to, or NULL. some: room for
 * 4 * (columns + 48). */
void pd_slices_float(const float *base, const float *target, int64_t rows, int64_t columns, double *by_row,
                     double *by_column, float *some) {
    double aside[SUMS];
    for (int64_t first = 0; first < rows; first += ROWS) {
        int64_t n = rows - first < ROWS ? rows - first : ROWS;
        const float *left = base + first * columns, *right = target + first * columns;
        double *mine = by_row ? by_row + first * SUMS : NULL;
        if (quick_rows(left, right, n, columns, mine, by_column, some))
            continue;
        for (int64_t row = 0; row < n; row++)
            row_of_floats(left + row * columns, right + row * columns, columns, mine ? mine + row * SUMS : aside,
                          by_column);
    }
}

void pd_slices_double(const double *base, const double *target, int64_t rows, int64_t columns, double *by_row,
                      double *by_column, float *some) {
    (void)some;
    double aside[SUMS];
    for (int64_t row = 0; row < rows; row++)
        row_of_doubles(base + row * columns, target + row * columns, columns, by_row ? by_row + row * SUMS : aside,
                       by_column);
}

/* Whether no slice's error could hide it: `told` times its squares about its own mean, of fewer than `enough` elements
 * its squares themselves, are more than its squared error, and than `constant` of its squares. sums: those of `many`
 * slices, `apart` from each other, and `next` from one of them to the next slice's. */
static int are_told(const double *sums, int64_t many, int64_t apart, int64_t next, double told, double constant,
                    double enough) {
    for (int64_t i = 0; i < many; i++, sums += next) {
        double count = sums[COUNT * apart], sum = sums[SUM * apart], squares = sums[SQUARES * apart];
        double error = sums[ERRORS * apart], about = count >= enough ? squares - sum * sum / count : squares;
        if (!(count > 0 && told * about > (error > constant * squares ? error : constant * squares)))
            return 0;
    }
    return 1;
}

/* Whether that holds of all slices along every axis of 2 to `most`; 0 also where there is no room to find it out. For
 * tensors so small that a call of each takes longer than the sums. */
#define ALL_TOLD(NAME, REAL, SUM_UP)                                                                                       int NAME(const REAL *base, const REAL *target, const int64_t *shape, int64_t axes, int64_t most, double told,                   double constant, double enough) {                                                                                 int64_t rows = 1, columns = shape[axes - 1], longest = 1;                                                              for (int64_t axis = 0; axis < axes - 1; axis++) {                                                                          rows *= shape[axis];                                                                                                   longest = shape[axis] > longest ? shape[axis] : longest;                                                           }                                                                                                                      int ends = columns > 1 && columns <= most, fine = 1;                                                                   int64_t room = SUMS * (rows + columns + longest);                                                                      double *by_row = calloc((size_t)room, sizeof *by_row), *by_column = by_row + SUMS * rows;                              float *some = malloc(4 * (size_t)APART(columns) * sizeof *some);                                                       double *slices = by_column + SUMS * columns;                                                                           if (!by_row || !some) {                                                                                                    free(by_row), free(some);                                                                                              return 0;                                                                                                          }                                                                                                                      SUM_UP(base, target, rows, columns, by_row, ends ? by_column : NULL, some);                                            if (ends)                                                                                                                  fine = are_told(by_column, columns, columns, 1, told, constant, enough);                                           for (int64_t axis = axes - 2, inner = 1; fine && axis >= 0; inner *= shape[axis--]) {                                      int64_t size = shape[axis];                                                                                            if (size < 2 || size > most)                                                                                               continue;                                                                                                          memset(slices, 0, SUMS * (size_t)size * sizeof *slices);                                                               for (int64_t row = 0; row < rows; row++)                                                                                   for (int sum = COUNT; sum <= ERRORS; sum++)                                                                                slices[row / inner % size * SUMS + sum] += by_row[row * SUMS + sum];                                           fine = are_told(slices, size, 1, SUMS, told, constant, enough);                                                    }                                                                                                                      free(by_row), free(some);                                                                                              return fine;                                                                                                       }

ALL_TOLD(pd_all_told_float, float, pd_slices_float)
ALL_TOLD(pd_all_told_double, double, pd_slices_double)

const char *pd_source(void) { return SOURCE; }

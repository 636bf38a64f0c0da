/* The numbers of one block, for one width of floating point; kernel.c includes this once for each.
 *
 * Extremes are found on integers that order like the numbers: they vectorise without leave to reassociate, and a NaN
 * or an infinity shows up as an extreme beyond the finite ones.
 */

INLINE BITS NAMED(bits)(REAL x) {
    BITS bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE BITS NAMED(ordered)(BITS bits) { return bits ^ ((bits >> (8 * sizeof(BITS) - 1)) & SIGNLESS); }

INLINE double NAMED(unordered)(BITS key) {
    BITS bits = NAMED(ordered)(key);
    REAL x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

INLINE int NAMED(is_finite)(REAL x) { return (NAMED(bits)(x) & SIGNLESS) < INFINITE; }

INLINE int NAMED(is_nan)(REAL x) { return (NAMED(bits)(x) & SIGNLESS) > INFINITE; }

CLONES static Scan NAMED(scan)(const REAL *x, int n, int count_half) {
    BITS low = SIGNLESS, high = ~(BITS)SIGNLESS, overflow = 0, subnormal = 0;
    if (count_half) {
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : overflow, subnormal)
        for (int i = 0; i < n; i++) {
            BITS bits = NAMED(bits)(x[i]), key = NAMED(ordered)(bits), magnitude = bits & SIGNLESS;
            low = key < low ? key : low;
            high = key > high ? key : high;
            overflow += magnitude > HALF_MAX;
            subnormal += (magnitude < HALF_TINY) & (magnitude > 0);
        }
    } else {
#pragma omp simd reduction(min : low) reduction(max : high)
        for (int i = 0; i < n; i++) {
            BITS key = NAMED(ordered)(NAMED(bits)(x[i]));
            low = key < low ? key : low;
            high = key > high ? key : high;
        }
    }
    int finite = high < INFINITE && low > NAMED(ordered)((BITS)(INFINITE | ~SIGNLESS));
    return (Scan){finite, overflow, subnormal, NAMED(unordered)(low), NAMED(unordered)(high)};
}

/* Sums of n finite pairs, and their errors into diff. */
INLINE void NAMED(sums)(Totals *totals, const REAL *base, const REAL *target, double *restrict diff, int n,
                        Side *base_side, Side *target_side) {
    double b_sum = 0, t_sum = 0, bb = 0, tt = 0, bt = 0, abs = 0, squares = 0;
#pragma omp simd reduction(+ : b_sum, t_sum, bb, tt, bt, abs, squares)
    for (int i = 0; i < n; i++) {
        double b = (double)base[i], t = (double)target[i], d = fabs(t - b);
        diff[i] = d;
        b_sum += b;
        t_sum += t;
        bb += b * b;
        tt += t * t;
        bt += b * t;
        abs += d;
        squares += d * d;
    }
    totals->sum_abs += abs;
    totals->squares += squares;
    totals->pair_base_squares += bb;
    totals->pair_target_squares += tt;
    totals->dot += bt;
    base_side->sum = b_sum, base_side->squares = bb;
    target_side->sum = t_sum, target_side->squares = tt;
}

/* Extremes and decisions of n finite pairs. map: their places in the block, NULL: 0, 1, 2, ... */
INLINE void NAMED(errors)(const Task *task, const REAL *base, const REAL *target, const double *diff,
                          const int32_t *map, int64_t first, int n, int either) {
    const Tolerance *tolerance = task->tolerance;
    Totals *totals = task->totals;
    double atol = tolerance->atol, rtol = tolerance->rtol, sum = 0;
    int64_t worst = 0, worst_relative = 0, absolute = 0, failed = 0;
    METRICS(STARTED_COUNT, STARTED_SUM)
    for (int start = 0; start < n; start += DOSE) {
        int stop = start + DOSE < n ? start + DOSE : n;
        prefetch(task, start, stop);
#pragma omp simd reduction(+ : sum, failed METRICS(LISTED, LISTED)) reduction(max : worst, worst_relative, absolute)
        for (int i = start; i < stop; i++) {
            double b = (double)base[i], t = (double)target[i], d = diff[i], m = fabs(b), part = rtol * m, r = relative(d, m);
            int64_t d_key = bits_of(d), r_key = bits_of(r);
            int64_t need = either ? (d > part ? d_key : 0) : bits_of(d - part);
            sum += r;
            worst = d_key > worst ? d_key : worst;
            worst_relative = r_key > worst_relative ? r_key : worst_relative;
            absolute = need > absolute ? need : absolute;
            METRICS(ADDED, ADDED)
            (void)t;
            failed += !passes(d, m, tolerance, either);
        }
    }
    totals->sum_rel += sum;
    METRICS(TOTALLED, TOTALLED)
    totals->mismatched += failed;
    if (absolute > bits_of(INFINITY)) { /* inf - inf is nothing */
        absolute = 0;
        for (int i = 0; i < n; i++) {
            double excess = diff[i] - rtol * fabs((double)base[i]);
            absolute = excess > double_of(absolute) ? bits_of(excess) : absolute;
        }
    }
    totals->required_atol = fmax(totals->required_atol, double_of(absolute));
    if (failed && totals->first_mismatch < 0) {
        int i = 0;
        while (passes(diff[i], fabs((double)base[i]), tolerance, either))
            i++;
        totals->first_mismatch = place(map, first, i);
    }
    if (double_of(worst) > totals->max_abs) {
        int64_t at = n;
#pragma omp simd reduction(min : at)
        for (int i = 0; i < n; i++) {
            int64_t here = bits_of(diff[i]) == worst ? i : n;
            at = here < at ? here : at;
        }
        totals->max_abs = double_of(worst);
        totals->max_abs_at = place(map, first, (int)at);
    }
    if (double_of(worst_relative) > totals->max_rel) {
        int64_t at = n;
#pragma omp simd reduction(min : at)
        for (int i = 0; i < n; i++) {
            int64_t here = bits_of(relative(diff[i], fabs((double)base[i]))) == worst_relative ? i : n;
            at = here < at ? here : at;
        }
        totals->max_rel = double_of(worst_relative);
        totals->max_rel_at = place(map, first, (int)at);
    }
    if (double_of(worst) > atol) {
        /* A quotient can only exceed the best one where the product does not: most blocks need no division. */
        double best = totals->required_rtol;
        int64_t better = 0, wanted = 0;
#pragma omp simd reduction(+ : better)
        for (int i = 0; i < n; i++) {
            double d = diff[i], rest = d > atol ? (either ? d : d - atol) : -1.0;
            better += rest >= best * fabs((double)base[i]);
        }
        if (!better)
            return;
#pragma omp simd reduction(max : wanted)
        for (int i = 0; i < n; i++) {
            double d = diff[i], rest = d > atol ? (either ? d : d - atol) : -1.0;
            int64_t key = bits_of(rest / fabs((double)base[i]));
            wanted = key > wanted ? key : wanted;
        }
        totals->required_rtol = fmax(best, double_of(wanted));
    }
}

/* n finite pairs of a block; equal pointers say that both sides are equal. */
CLONES static void NAMED(pairs)(const Task *task, const REAL *base, const REAL *target, const int32_t *map, int64_t first,
                         int n, double *diff, Side *base_side, Side *target_side) {
    Totals *totals = task->totals;
    totals->finite += n;
    if (base == target) {
        double sum = 0, squares = 0;
        for (int start = 0; start < n; start += DOSE) {
            int stop = start + DOSE < n ? start + DOSE : n;
            prefetch(task, start, stop);
#pragma omp simd reduction(+ : sum, squares)
            for (int i = start; i < stop; i++) {
                double b = (double)base[i];
                sum += b;
                squares += b * b;
            }
        }
        memset(diff, 0, (size_t)n * sizeof *diff);
        totals->pair_base_squares += squares;
        totals->pair_target_squares += squares;
        totals->dot += squares;
        base_side->sum = target_side->sum = sum;
        base_side->squares = target_side->squares = squares;
        if (n && totals->max_abs < 0)
            totals->max_abs = 0, totals->max_abs_at = place(map, first, 0);
        if (n && totals->max_rel < 0)
            totals->max_rel = 0, totals->max_rel_at = place(map, first, 0);
    } else if (n) {
        NAMED(sums)(totals, base, target, diff, n, base_side, target_side);
        if (task->tolerance->either)
            NAMED(errors)(task, base, target, diff, map, first, n, 1);
        else
            NAMED(errors)(task, base, target, diff, map, first, n, 0);
    }
    if (task->diffs) {
        memcpy(task->diffs + totals->kept, diff, (size_t)n * sizeof *diff);
        totals->kept += n;
    }
}

/* An element that is not part of a finite pair: counted, and summed where it is itself finite. */
INLINE void NAMED(alone)(REAL x, int64_t *nan, int64_t *inf, double *low, double *high, Side *side) {
    double value = (double)x;
    if (NAMED(is_nan)(x)) {
        ++*nan;
    } else if (!NAMED(is_finite)(x)) {
        ++*inf;
    } else {
        *low = fmin(*low, value);
        *high = fmax(*high, value);
        side->sum += value;
        side->squares += value * value;
    }
}

/* A pair that is not finite. */
INLINE void NAMED(special)(const Task *task, REAL base, REAL target, int64_t at) {
    Totals *totals = task->totals;
    int b_nan = NAMED(is_nan)(base), t_nan = NAMED(is_nan)(target);
    int matched = b_nan || t_nan ? task->tolerance->equal_nan && b_nan && t_nan : base == target;
    if (matched)
        return;
    totals->mismatched++;
    totals->special++;
    if (totals->first_mismatch < 0 || at < totals->first_mismatch)
        totals->first_mismatch = at;
    if (b_nan || t_nan)
        return;
    if (totals->max_abs < INFINITY || at < totals->max_abs_at)
        totals->max_abs = INFINITY, totals->max_abs_at = at;
    if (totals->max_rel < INFINITY || at < totals->max_rel_at)
        totals->max_rel = INFINITY, totals->max_rel_at = at;
}

/* A block in which not every element is finite: the finite pairs are moved together first. */
static void NAMED(ragged)(const Task *task, const REAL *base, const REAL *target, int64_t first, int n) {
    Totals *totals = task->totals;
    REAL b_left[BLOCK + 1], t_left[BLOCK + 1];
    int32_t map[BLOCK + 1], apart[BLOCK + 1];
    double diff[BLOCK];
    int left = 0, others = 0;
    Side b_side = {0, 0}, t_side = {0, 0};
    for (int i = 0; i < n; i++) {
        int finite = NAMED(is_finite)(base[i]) & NAMED(is_finite)(target[i]);
        b_left[left] = base[i], t_left[left] = target[i], map[left] = i, apart[others] = i;
        left += finite;
        others += !finite;
    }
    Scan b_scan = NAMED(scan)(b_left, left, 1), t_scan = NAMED(scan)(t_left, left, 0);
    double b_low = left ? b_scan.low : INFINITY, b_high = left ? b_scan.high : -INFINITY;
    double t_low = left ? t_scan.low : INFINITY, t_high = left ? t_scan.high : -INFINITY;
    totals->fp16_overflow += b_scan.overflow;
    totals->fp16_subnormal += b_scan.subnormal;
    NAMED(pairs)(task, b_left, base == target ? b_left : t_left, map, first, left, diff, &b_side, &t_side);
    for (int k = 0; k < others; k++) {
        int i = apart[k];
        double magnitude = fabs((double)base[i]);
        totals->fp16_overflow += magnitude > 65504.0;
        totals->fp16_subnormal += (magnitude < 0x1p-14) & (magnitude > 0);
        NAMED(alone)(base[i], &totals->base_nan, &totals->base_inf, &b_low, &b_high, &b_side);
        NAMED(alone)(target[i], &totals->target_nan, &totals->target_inf, &t_low, &t_high, &t_side);
        NAMED(special)(task, base[i], target[i], first + i);
    }
    totals->base_min = fmin(totals->base_min, b_low);
    totals->base_max = fmax(totals->base_max, b_high);
    totals->target_min = fmin(totals->target_min, t_low);
    totals->target_max = fmax(totals->target_max, t_high);
    totals->base_sum += b_side.sum;
    totals->base_squares += b_side.squares;
    totals->target_sum += t_side.sum;
    totals->target_squares += t_side.squares;
    if (!task->histogram)
        return;
    for (int start = 0; start < n; start += 8) {
        int i = start + lane(first + start);
        if (i < n && NAMED(is_finite)(base[i]) && NAMED(is_finite)(target[i]))
            task->histogram[bucket(fabs((double)target[i] - (double)base[i]))]++;
    }
}

/* The whole of a block. Where both pointers are equal, the sides are. */
static void NAMED(block)(const Task *task, const REAL *base, const REAL *target, const Scan *b_scan,
                         const Scan *t_scan, int64_t first, int n) {
    Totals *totals = task->totals;
    double diff[BLOCK];
    Side b_side = {0, 0}, t_side = {0, 0};
    if (!b_scan->finite || !t_scan->finite) {
        NAMED(ragged)(task, base, target, first, n);
        return;
    }
    NAMED(pairs)(task, base, target, NULL, first, n, diff, &b_side, &t_side);
    totals->fp16_overflow += b_scan->overflow;
    totals->fp16_subnormal += b_scan->subnormal;
    totals->base_min = fmin(totals->base_min, b_scan->low);
    totals->base_max = fmax(totals->base_max, b_scan->high);
    totals->target_min = fmin(totals->target_min, t_scan->low);
    totals->target_max = fmax(totals->target_max, t_scan->high);
    totals->base_sum += b_side.sum;
    totals->base_squares += b_side.squares;
    totals->target_sum += t_side.sum;
    totals->target_squares += t_side.squares;
    if (task->histogram)
        count_errors(task->histogram, diff, first, n);
}

#undef REAL
#undef BITS
#undef NAMED
#undef INFINITE
#undef SIGNLESS
#undef HALF_MAX
#undef HALF_TINY

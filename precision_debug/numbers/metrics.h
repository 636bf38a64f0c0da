/* The one place that declares a metric of errors, for every way to compute it and for the report: metrics.py reads it.
 *
 *     SHARE(name, expression, title, its Chinese, what it says, its Chinese)   of the finite pairs for which it holds
 *     MEAN(name, expression, ...)                                              its mean over the finite pairs
 *
 * name: of the number in the JSON and of its column. expression: of one pair of elements that are both finite, in
 * float64, in what C and Python have in common, and 0 where both are equal:
 *     b, t     the baseline's element and the target's         d, m     |t - b| and |b|
 *     + - * /  < <= > >= == !=  fabs(x)                        (...) & (...), (...) | (...)   for "and" and "or"
 *
 * Nothing has to be compiled after a change. What the compiled kernels hold themselves stands in held.h; the others are
 * computed by one more reading of both tensors, by numpy, and of torch's tensors on their device.
 */
#define METRICS(SHARE, MEAN)                                                                                           \
    SHARE(share_rel_over_1pct, d > 0.01 * m,                                                                           \
          "Share > 1% Rel", "相对误差>1% 比例",                                                                        \
          "Share of elements with |target - base| > 1 % of |base|.", "相对误差超过 1 % 的元素比例。")

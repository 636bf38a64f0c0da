/* The metrics of metrics.h that the compiled kernels, C's and CUDA's, compute themselves while they read a pair.
 *
 *     SHARE(name, expression)  MEAN(name, expression)   as metrics.h has them, to the letter
 *
 * Those that are not here are computed by one more reading of both tensors, so that a new metric needs no compiler; the
 * kernels do all the rest as before. To bring one here is worth it where that reading shows: then scan.h has to count it
 * too (kernels.py, SCANNED), and python hatch_build.py and python -m precision_debug.products.device.ptx compile anew.
 */
#define METRICS(SHARE, MEAN)                                                                                           \
    SHARE(share_rel_over_1pct, d > 0.01 * m)

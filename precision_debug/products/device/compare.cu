/* The comparison of two tensors on a CUDA device, for the plain driver: see scan.h and settle.h.
 *
 * ptx.py compiles it, once without PAIR for what all pairs of types need, and once for each pair with
 * -DPAIR=name -DBASE=type -DTARGET=type. Bounds of the numbers: kernels.py.
 */
#ifdef PAIR
#include "scan.h"
#define SCAN_OF(NAME, B, T) SCANNING(NAME, B, T)
SCAN_OF(PAIR, BASE, TARGET)
#else
#include "settle.h"
#endif

/* The CUDA kernels' own text for a processor: a warp has one lane, a block one thread, and blocks run in their order. */
#include "scan.h"
#include "settle.h"

SCANNING(f32_f32, Float, Float)
SCANNING(f16_f16, Half, Half)
SCANNING(bf16_bf16, Brain, Brain)
SCANNING(f32_f16, Float, Half)
SCANNING(f32_bf16, Float, Brain)

/* What Python calls: every block of a kernel. */
extern "C" void launch(void (*kernel)(Job), int blocks, const Job *job) {
    block_count = blocks;
    for (block_number = 0; block_number < blocks; block_number++)
        kernel(*job);
}

/* clones.h: the attribute of a loop that is compiled for each instruction set, as the layers' own
 * loops are. On processors other than x86-64 the layers have one variant, and so has the loop.
 */
#ifndef OPENREG_BENCH_CLONES_H
#define OPENREG_BENCH_CLONES_H

#ifdef __x86_64__
#define FOR_EACH_SIMD __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define FOR_EACH_SIMD __attribute__((optimize("O3")))
#endif

#endif

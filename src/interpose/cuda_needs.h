/* The libraries that a library built for CUDA needs. If one of them is missing, the dynamic linker says so in a single
 * line; this check, made before, names the missing library. */
#ifndef WI_CUDA_NEEDS_H
#define WI_CUDA_NEEDS_H

/* The first library that cannot be opened: of the driver's, and those of CUDA that all engines need, then of `more`,
 * which ends with NULL; NULL for none. NULL: all are here. What was opened stays open for good, as whoever asks is about
 * to use it: to open libcublasLt once more takes 80 ms. */
const char *wi_cuda_missing(const char *const *more);

#endif

/* What a library that was built for CUDA needs beside itself. Opening it without that ends in one line of the dynamic
 * linker's; asked before, the answer names what is missing. */
#ifndef WI_CUDA_NEEDS_H
#define WI_CUDA_NEEDS_H

/* The first library that cannot be opened: of the driver's, and those of CUDA that all engines need, then of `more`,
 * which ends with NULL; NULL for none. NULL: all are here. What was opened stays open for good, as whoever asks is about
 * to use it: to open libcublasLt once more takes 80 ms. */
const char *wi_cuda_missing(const char *const *more);

#endif

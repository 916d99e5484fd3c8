/* cuda_record.h: writes down what a module asks of CUDA's runtime, in the order in which it does: lines that
 * cuda_replay.c reads (tests/data/gguf/cuda_calls.txt says what they mean). By the module's import slots, as a redirect.
 * For a module that is used by one thread at a time. */
#ifndef CUDA_RECORD_H
#define CUDA_RECORD_H

/* The reason when it cannot begin. Lines go to standard output. */
const char *record_begin(const char *module);
void record_phase(const char *name);
void record_end(void);

#endif

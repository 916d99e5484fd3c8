/* What the stubs of NVML and of CUDA's driver know: a file gpus.txt beside the library, read at each start of it.
 * Lines:
 *   driver 580.65.06          cuda 13000
 *   sleep NVML CUDA           milliseconds that a start takes
 *   fail NVML CUDA            what a start answers
 *   gpu UUID PCI RANK CAPABILITY UNITS TOTAL FREE FLAGS NAME      by address; RANK: CUDA's, the fastest first
 *   mig UUID UNITS TOTAL FREE NAME                                a slice of the last, a GPU instance
 *   limit PCI GROUP SOFT HARD USED                                 NVML's limits for a cgroup; HARD 0: none
 *   mig+ UUID UNITS TOTAL FREE NAME                               another slice of the same GPU instance
 * FLAGS: - or words between commas: integrated, lost, unknown (its memory), nowhere (NVML does not tell its address),
 * anonymous (CUDA's driver tells no UUID), nvml, cuda (not there for that library). */
#ifndef STUB_H
#define STUB_H

#include <stdbool.h>
#include <stddef.h>

enum { STUB_MOST = 16 };

typedef struct stub_gpu {
    char uuid[64], pci[32], flags[64], name[96];
    int rank, major, minor, parent; /* parent: -1, or the number of the device that it is a slice of */
    int instance;                   /* of a slice: number of its GPU instance */
    unsigned units;
    unsigned long long total, free;
} stub_gpu;

typedef struct stub_limit {
    char pci[32], group[128];
    unsigned long long soft, hard, used;
} stub_limit;

typedef struct stub_machine {
    char driver[32];
    int cuda, sleep_nvml, sleep_cuda, fail_nvml, fail_cuda;
    stub_gpu gpus[STUB_MOST];
    int count;
    stub_limit limits[STUB_MOST];
    int limit_count;
} stub_machine;

/* `self`: any function of the library. */
void stub_read(stub_machine *machine, void (*self)(void));
bool stub_flag(const stub_gpu *gpu, const char *word);
void stub_sleep(int milliseconds);

#endif

/* The operating system, as far as it is not a device: clock, threads and forks; its small files, and what they tell of memory,
 * processors and mappings. */
#ifndef WI_SYSTEM_H
#define WI_SYSTEM_H

#include "base/internal.h"

uint64_t wi_now(void);           /* monotonic nanoseconds */
double wi_real_seconds(void);    /* the same in seconds, whatever wi_clock says */
uint64_t wi_thread_number(void); /* 1 for the first thread that asks, 2 for the second … */

/* Starts a thread of weir's own, to which no signal of the program's is delivered. *joined is the thread; with NULL it is
 * detached. Returns 0, or an errno: there is no thread. */
int wi_thread_start(pthread_t *joined, void *(*fn)(void *user), void *user);

/* Waits one spin, counted from 0, for another thread that is doing something short. That thread may need this
 * processor and have a lower priority, so that yielding is replaced by sleeping after a few spins. */
void wi_pause(unsigned spin);

/* Replaces the system's clock in wi_now if set: simulated time. Set before anything else of weir is called. */
extern uint64_t (*wi_clock)(void);

/* Set where one thread plays all threads, as in the simulator: waiting for another thread would never end. Such waits
 * return at once then, as if that thread were done. */
extern bool wi_alone;

/* Memory of a thread ----------------------------------------------------------------------------------------------- */

/* For memory of a thread that is too large for thread-local storage.
 *
 * A library that is loaded late gets static thread-local storage from a small reserve of the C library's; dynamic
 * storage costs every thread all its bytes. So libweir has only pointers in thread-local storage (tests/core/opened.c
 * counts them), and makes what they point to when a thread first needs it. */

/* The calling thread's memory behind `*pointer`, a thread-local pointer: `bytes` zeros at the first call. It is freed
 * when the thread ends, and *place is NULL again. NULL: no host memory. Does not change the detail. */
void *wi_own(void **pointer, size_t bytes);

/* Small files ------------------------------------------------------------------------------------------------------ */

/* The most that is read of a file. */
enum { WI_SYSFS_BYTES = 8192 };

/* Reads the file whose path is printed from `format`, without white space at its end. False, with an empty text: it
 * cannot be read. Does not block on a file that is not a plain one. */
bool wi_sysfs_text(char *text, size_t capacity, const char *format, ...) WEIR_PRINTF(3, 4);

/* The number at the beginning of the file, decimal or 0x; false, with *out unchanged: there is none. */
bool wi_sysfs_number(uint64_t *out, const char *format, ...) WEIR_PRINTF(2, 3);

/* The text behind `key`, without blanks, on the first line that begins with it; NULL: there is none. */
const char *wi_sysfs_line(const char *text, const char *key);

/* The number there; false, with *out unchanged: there is none. */
bool wi_sysfs_field(const char *text, const char *key, uint64_t *out);

/* Memory and processors -------------------------------------------------------------------------------------------- */

/* Memory and processors that this process may use: the machine's, within the limits of its cgroup and of all parents of
 * that, in both versions of cgroups, and within its affinity.
 *
 * `root` is what stands before every path: "", or the directory of another machine's files. */

/* Bytes of memory that the process may use, and how many of them are free. Files that a group has read and not used
 * since (inactive_file) are free, as the kernel gives them up first. Of memory.max and memory.high the smaller is the
 * limit: above memory.high a group is throttled until it is as good as stopped. A limit of 0 is valid. False, with 0
 * and 0: unknown. */
bool wi_cgroup_memory(const char *root, uint64_t *available, uint64_t *total);

/* What the process may have of a device's own memory. */
typedef struct wi_device_limits {
    uint64_t most;       /* bytes; UINT64_MAX: nobody limits */
    uint64_t left;       /* bytes below the limit that are still free; UINT64_MAX */
    uint64_t guaranteed; /* bytes that are kept for this process's group; 0: none */
} wi_device_limits;

/* The limits by dmem.max, dmem.current and dmem.min of the groups of version 2 (Linux 6.14 and later) for the device at the
 * address `bus` ("0000:3b:00.0"). Of nested groups the least counts. False: nobody limits, and nobody guarantees. */
bool wi_cgroup_device_memory(const char *root, const char *bus, wi_device_limits *out);

/* The same as NVML tells it for the process's group, or for the nearest group above it of which NVML knows limits. `get` is
 * nvmlDeviceGetMemoryLimits_v1 (CUDA 13.4), NULL where the library has none; `device` is NVML's handle. */
typedef int (*wi_nvml_limits_function)(void *device, void *limits);
bool wi_cgroup_nvml_limits(const char *root, wi_nvml_limits_function get, void *device, wi_device_limits *out);

/* What two tell of the same: the lesser limits, and the larger guarantee, as one of the two may know none. */
void wi_device_limits_join(wi_device_limits *to, const wi_device_limits *other);

/* Processors that the process may use: those of its affinity and cpuset, and no more than its groups' share of time
 * fills (cpu.max, rounded up). 0: unknown. */
uint32_t wi_cgroup_processors(const char *root);

/* Processors that the groups' share of time fills. 0: there is no such limit. */
uint32_t wi_cgroup_quota(const char *root);

/* Mappings --------------------------------------------------------------------------------------------------------- */

/* The mappings of the process. The kernel allows it a number of them (vm.max_map_count, as a rule 65,530), for threads,
 * the C library and all libraries together; when they are used up, everything fails. So weir leaves the last sixteenth
 * to the others. */

typedef struct wi_mappings {
    uint64_t there, most;
} wi_mappings;

/* Counts them, in up to 20 ms. Where the system does not tell, `there` is 0. */
wi_mappings wi_mappings_count(void);

/* Whether weir may make `count` more mappings, which are counted as made. Reads the number of mappings again after some
 * hundred, to see mappings of other code in time. Any thread. */
bool wi_mappings_take(uint64_t count);

/* Whether so few are left that wi_mappings_take refuses, or will soon. */
bool wi_mappings_are_short(void);

#endif

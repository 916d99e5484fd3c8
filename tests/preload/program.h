/* What the cases of the program have together, and those of several.c. The budget is 64 MiB a device. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "preload/way.h"

/* cuMemAlloc and cuMemFree, which answer as they should. */
CUdeviceptr take(size_t bytes);
void give(CUdeviceptr address);
/* What cuMemAlloc answers; what it gave is freed. */
CUresult try(size_t bytes);
/* What cuMemGetInfo says is free, of 64 MiB. */
size_t left(void);
CUstream new_stream(void);
/* One with work that takes until `let_pass`, which is for all of them, and for good. */
CUstream busy_stream(void);
void let_pass(CUstream stream);

extern const CUmemAllocationProp on_device;

/* Cases of several.c. */
void arrays(void);
void host_fails(void);
void mappings(void);
void captures(void);
void pools_of_two_devices(void);
void resets(void);
void direct_fails(void);
void budgets(void);
void forms(void);
void without_host_memory(void);
void held_up_late(void);
void reused(void);

/* Cases of newer.c. */
void pools_by_place(void);
void part_of_a_device(void);
void recaptures(void);
void entry_points(void);

#endif
